package devicetest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"thaw/snapshot/format"
)

var update = flag.Bool("update", false, "write the golden state where there is none")

// Encode returns a state as a snapshot holds it.
func Encode(t testing.TB, state any) []byte {
	t.Helper()
	b, err := format.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Decode reads a state from a snapshot's bytes.
func Decode[S any](t testing.TB, b []byte) (s S) {
	t.Helper()
	if err := format.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Golden checks that a state is saved as it was when version 1 of it was laid
// down, and that a state of that version is read. A field more needs another
// version, and both files kept.
func Golden[S any](t *testing.T, s S) {
	t.Helper()
	path := filepath.Join("testdata", "state-v1.cbor")
	b := Encode(t, s)
	if _, err := os.Stat(path); *update && os.IsNotExist(err) {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("state is saved as\n%x, version 1 is\n%x", b, want)
	}
	if old := Decode[S](t, want); !reflect.DeepEqual(old, s) {
		t.Errorf("version 1 is read as\n%+v, want\n%+v", old, s)
	}
}

// Changes calls check with copies of a state, in each of which one field has
// another value: every field there is, and what flipped bits, cut lists and
// extreme numbers make of it.
func Changes[S any](t testing.TB, good S, check func(t testing.TB, field string, s S)) {
	t.Helper()
	b := Encode(t, good)
	for target := 0; ; target++ {
		s := Decode[S](t, b)
		c := changer{left: target}
		c.walk("", reflect.ValueOf(&s).Elem())
		if c.done == "" {
			if target == 0 {
				t.Error("a state without fields")
			}
			return
		}
		check(t, c.done, s)
	}
}

// changer makes one change, when it has passed over a number of others.
type changer struct {
	left int
	done string // the field that was changed, and how
}

// change makes a change if it is the one.
func (c *changer) change(field, how string, do func()) {
	if c.done == "" && c.left == 0 {
		do()
		c.done = field + " " + how
	}
	c.left--
}

func (c *changer) walk(field string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				c.walk(field+"."+f.Name, v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			c.walk(field, v.Index(i))
		}
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		c.change(field, "missing", v.SetZero)
		if c.done == "" {
			c.walk(field, v.Elem())
		}
	case reflect.Slice:
		c.slice(field, v)
	case reflect.String:
		c.change(field, "empty", func() { v.SetString("") })
		c.change(field, "longer", func() { v.SetString(v.String() + "0123456789abcdefghijk") })
	case reflect.Bool:
		c.change(field, "flipped", func() { v.SetBool(!v.Bool()) })
	default:
		c.number(field, v)
	}
}

func (c *changer) slice(field string, v reflect.Value) {
	n := v.Len()
	if n > 0 {
		c.change(field, "empty", v.SetZero)
		c.change(field, "cut", func() { v.Set(v.Slice(0, n-1)) })
		c.change(field, "longer", func() { v.Set(reflect.Append(v, v.Index(n-1))) })
	} else {
		c.change(field, "longer", func() { v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem()))) })
	}
	for i := range n {
		if c.done == "" {
			c.walk(field, v.Index(i))
		}
	}
}

func (c *changer) number(field string, v reflect.Value) {
	bits := v.Type().Bits()
	for _, to := range []struct {
		how    string
		number func(uint64) uint64
	}{
		{"plus one", func(x uint64) uint64 { return x + 1 }},
		{"minus one", func(x uint64) uint64 { return x - 1 }},
		{"zero", func(uint64) uint64 { return 0 }},
		{"all ones", func(uint64) uint64 { return ^uint64(0) }},
		{"largest", func(uint64) uint64 { return 1<<(bits-1) - 1 }},
		{"top bit flipped", func(x uint64) uint64 { return x ^ 1<<(bits-1) }},
	} {
		c.change(field, to.how, func() {
			if v.CanInt() {
				x := to.number(uint64(v.Int()))
				v.SetInt(int64(x<<(64-bits)) >> (64 - bits))
				return
			}
			v.SetUint(to.number(v.Uint()) << (64 - bits) >> (64 - bits))
		})
	}
}
