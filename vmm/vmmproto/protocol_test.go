package vmmproto

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files in testdata anew: encodings of a new protocol, and the corpora of the fuzz tests")

// A first message of another protocol, or of a build that had no number yet, says so whatever follows.
func TestOtherProtocol(t *testing.T) {
	for name, tc := range map[string]struct {
		packet string
		got    uint64
	}{
		"start, older":           {message(KindStart, Protocol-1, 1, 2), Protocol - 1},
		"start, newer":           {message(KindStart, Protocol+1, 0xff), Protocol + 1},
		"start of nothing else":  {message(KindStart, Protocol+1), Protocol + 1},
		"start without a number": {message(KindStart, 0, 2, 0x80, 0x80, 0x80, 0x80, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0},
		"shell without a number": {message(KindStart, 1, 2, 0x80, 0x80, 0x80, 0x80, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 1},
		"handle, newer":          {message(KindHandle, 0x80, 1), 128},
		"handle of no number":    {message(KindHandle, 0x80, 0x80, 0x80, 0x80, 2), 512 << 20},
	} {
		_, err := DecodeFromDaemon([]byte(tc.packet), 2)
		var other *ProtocolError
		if !errors.As(err, &other) || *other != (ProtocolError{Want: Protocol, Got: tc.got}) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		} else if text := err.Error(); !strings.Contains(text, fmt.Sprintf("protocol %d is wanted, %d came", Protocol, tc.got)) {
			t.Errorf("%s: %s", name, text)
		}
	}
	for _, short := range []string{message(KindStart), message(KindHandle), message(KindStart, 0x82)} {
		var other *ProtocolError
		if _, err := DecodeFromDaemon([]byte(short), 0); !errors.Is(err, ErrInvalid) || errors.As(err, &other) {
			t.Errorf("%q: %v", short, err)
		}
	}
}

const encodingsFile = "testdata/encodings.txt"

// encodings has for each field of each kind the bytes of a message that has nothing else set, and for each kind those of an
// empty one. So a field that is moved, added, dropped or coded in another way is seen, whatever its type.
func encodings(t *testing.T) map[string]string {
	list := map[string]string{}
	for _, kinds := range []map[Kind]func() Message{fromDaemon, fromVMM} {
		for kind, newMessage := range kinds {
			note := func(name string, m Message) {
				list[name] = fmt.Sprintf("%x", unchecked(m))
			}
			name := string(kind)
			note(name, newMessage())
			for i := 0; ; i++ {
				m := newMessage()
				left := i
				path := setLeaf(t, reflect.ValueOf(m).Elem(), &left)
				if path == "" {
					break
				}
				note(name+path, m)
				if list[name+path] == list[name] {
					t.Errorf("%s%s is not sent", name, path)
				}
			}
		}
	}
	return list
}

// setLeaf sets what is number left of the leaves below v, a number to one of two bytes, and returns its path; none if there are
// fewer.
func setLeaf(t *testing.T, v reflect.Value, left *int) string {
	within := func(inner reflect.Value, keep func()) string {
		path := setLeaf(t, inner, left)
		if path != "" && keep != nil {
			keep()
		}
		return path
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if path := within(v.Field(i), nil); path != "" {
				return "." + v.Type().Field(i).Name + path
			}
		}
		return ""
	case reflect.Array:
		for i := range v.Len() {
			if path := within(v.Index(i), nil); path != "" {
				return fmt.Sprintf("[%d]", i) + path
			}
		}
		return ""
	case reflect.Pointer:
		inner := reflect.New(v.Type().Elem())
		return within(inner.Elem(), func() { v.Set(inner) })
	case reflect.Slice:
		inner := reflect.MakeSlice(v.Type(), 1, 1)
		return within(inner.Index(0), func() { v.Set(inner) })
	}
	if *left--; *left >= 0 {
		return ""
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(-200)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(200)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]uint64{"x": 200}))
	default:
		t.Fatalf("no value for a %s", v.Type())
	}
	return "="
}

// The encoding is the one that the number stands for.
func TestEncodings(t *testing.T) {
	now := encodings(t)
	var b strings.Builder
	fmt.Fprintf(&b, "protocol %d\n", Protocol)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&b, "%s %s\n", name, now[name])
	}
	committed, err := os.ReadFile(encodingsFile)
	if err != nil && !(*update && errors.Is(err, os.ErrNotExist)) {
		t.Fatal(err)
	}
	if b.String() == string(committed) {
		return
	}
	var number int
	fmt.Sscanf(string(committed), "protocol %d\n", &number)
	if number >= Protocol {
		then := strings.Split(string(committed), "\n")
		for _, line := range strings.Split(b.String(), "\n") {
			if !slices.Contains(then, line) {
				t.Logf("is new: %s", line)
			}
		}
		t.Fatalf("the encoding is not the one of protocol %d any more: raise the constant Protocol in protocol.go, so that a daemon "+
			"and a thaw-vmm of different builds refuse each other, then run go test ./vmm/vmmproto -update", number)
	}
	if !*update {
		t.Fatalf("the encodings of protocol %d are not in %s: run go test ./vmm/vmmproto -update", Protocol, encodingsFile)
	}
	if err := os.WriteFile(encodingsFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
