package agentproto

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func warmMessages() []any {
	return []any{
		&WarmRequest{Runtime: "python", Preload: []string{"numpy"}, Env: []string{"A=1"}, Timeout: time.Second},
		&WarmResult{ExecID: 1, PID: 2, Version: "3.13.5", Modules: 3, Missing: []string{"x"}, Took: 4, MemoryBytes: 5},
		&RunRequest{ExecID: 1, Argv: []string{"python3", "\xff"}, Env: []string{"A="}, Cwd: "/w", Limits: Limits{Pids: 1}, StdoutCap: 2,
			StderrCap: 3, Timeout: 4, Grace: 5, Stdin: true, Outputs: "out"},
		&CodeRequest{ExecID: 1, Source: "x = 1", Timeout: 2, Grace: 3, StdoutCap: 4, StderrCap: 5},
		&CellResult{Status: CellError, Result: "r", HasResult: true, Cut: true, Type: "E", Message: "m", StdoutBytes: 1, StdoutDropped: 2,
			StderrBytes: 3, StderrDropped: 4, Wall: 5},
	}
}

func TestWarmMessages(t *testing.T) {
	for _, m := range warmMessages() {
		b, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface()
		if err := Decode(b, got); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
	}
}

func TestWarmBounds(t *testing.T) {
	for name, m := range map[string]validator{
		"negative timeout":   &WarmRequest{Timeout: -1},
		"empty preload":      &WarmRequest{Preload: []string{""}},
		"much preload":       &WarmRequest{Preload: make([]string, MaxPreload+1)},
		"bad environment":    &WarmRequest{Env: []string{"x"}},
		"long version":       &WarmResult{Version: strings.Repeat("x", 257)},
		"negative modules":   &WarmResult{Modules: -1},
		"long missing":       &WarmResult{Missing: []string{strings.Repeat("x", MaxPath+1)}},
		"no arguments":       &RunRequest{},
		"relative directory": &RunRequest{Argv: []string{"x"}, Cwd: "w"},
		"outputs outside":    &RunRequest{Argv: []string{"x"}, Outputs: "../x"},
		"cap":                &CodeRequest{StdoutCap: MaxOutputCap + 1},
		"grace":              &CodeRequest{Grace: MaxGrace + 1},
		"status":             &CellResult{Status: "odd"},
		"long result":        &CellResult{Status: CellOK, Result: strings.Repeat("x", MaxResult+1)},
		"long message":       &CellResult{Status: CellOK, Message: strings.Repeat("x", MaxCellMessage+1)},
		"negative count":     &CellResult{Status: CellOK, StdoutDropped: -1},
		"long reason":        &Started{Cold: strings.Repeat("x", 257)},
	} {
		if m.Validate() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// FuzzWarmMessages: no bytes panic, and what is accepted is within its bounds.
func FuzzWarmMessages(f *testing.F) {
	for _, m := range warmMessages() {
		b, err := Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []validator{new(WarmRequest), new(WarmResult), new(RunRequest), new(CodeRequest), new(CellResult)} {
			if err := Decode(b, m); err != nil {
				if !errors.Is(err, ErrProtocol) {
					t.Errorf("error %v", err)
				}
			} else if err := m.Validate(); err != nil {
				t.Errorf("accepted, and then %v", err)
			}
		}
	})
}
