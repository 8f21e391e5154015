package seccomp_test

import (
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"thaw/internal/seccomp"
	"thaw/internal/seccomp/seccomptest"
)

var eperm = seccomp.Errno(unix.EPERM)

// allowing and denying are small policies of both kinds.
var (
	allowing = seccomp.Policy{
		Unlisted: seccomp.Kill, Refused: seccomp.Kill,
		Rules: []seccomp.Rule{
			{56, seccomp.OneOf(0, 0x50f00), ""},
			{0, seccomp.Always, ""},
			{8, seccomp.Always, ""},
			{9, seccomp.NoBits(2, 4), ""},
			{5, seccomp.When{{seccomp.Is(0, 1), {5, 6, 0}}, {seccomp.Is(2, 1<<40)}}, ""},
			{6, seccomp.When{{{1, 0xff00_0000_0000_000f, 0x0100_0000_0000_0005}}}, ""},
			{7, seccomp.Never, ""},
		},
	}
	denying = seccomp.Policy{
		Unlisted: seccomp.Allow, Refused: eperm,
		Rules: []seccomp.Rule{
			{165, seccomp.Never, ""},
			{41, seccomp.OneOf(0, 1, 2, 10), ""},
		},
	}
)

func TestAnswers(t *testing.T) {
	a, d := seccomptest.New(t, &allowing), seccomptest.New(t, &denying)
	const high = 1 << 32
	for _, c := range []struct {
		name   string
		filter seccomptest.Filter
		number uintptr
		args   []uint64
		want   seccomp.Action
	}{
		{"always", a, 0, []uint64{1, 2, 3}, seccomp.Allow},
		{"never", a, 7, nil, seccomp.Kill},
		{"unlisted", a, 10, nil, seccomp.Kill},
		{"equal", a, 56, []uint64{0x50f00}, seccomp.Allow},
		{"equal, high bit", a, 56, []uint64{high | 0x50f00}, seccomp.Kill},
		// A failed condition must not leave its argument to be taken for a
		// call's number.
		{"argument is a later call's number", a, 56, []uint64{8}, seccomp.Kill},
		{"no bits", a, 9, []uint64{0, 0, 3}, seccomp.Allow},
		{"a bit", a, 9, []uint64{0, 0, 7}, seccomp.Kill},
		{"both conditions", a, 5, []uint64{1, 0, 0, 0, 0, 8}, seccomp.Allow},
		{"first condition", a, 5, []uint64{1, 0, 0, 0, 0, 2}, seccomp.Kill},
		{"second condition", a, 5, []uint64{2, 0, 0, 0, 0, 8}, seccomp.Kill},
		{"second alternative", a, 5, []uint64{2, 0, 1 << 40, 0, 0, 2}, seccomp.Allow},
		{"masked", a, 6, []uint64{0, 0x01ab_cdef_1234_5675}, seccomp.Allow},
		{"masked, high half", a, 6, []uint64{0, 0x02ab_cdef_1234_5675}, seccomp.Kill},
		{"masked, low half", a, 6, []uint64{0, 0x01ab_cdef_1234_5674}, seccomp.Kill},
		{"x32", a, 0x4000_0000, nil, seccomp.Kill},

		{"unlisted passes", d, 0, nil, seccomp.Allow},
		{"denied", d, 165, nil, eperm},
		{"of the list", d, 41, []uint64{2}, seccomp.Allow},
		{"not of the list", d, 41, []uint64{40}, eperm},
		{"not of the list, high bit", d, 41, []uint64{high | 40}, eperm},
		{"argument is a call's number", d, 41, []uint64{0}, eperm},
		{"x32 has no such call", d, 0x4000_0000, nil, seccomp.Errno(unix.ENOSYS)},
		{"-1 has no such call", d, 0xffff_ffff, nil, seccomp.Errno(unix.ENOSYS)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.filter.Call(c.number, c.args...); got != c.want {
				t.Errorf("answer is %#x, want %#x", uint32(got), uint32(c.want))
			}
		})
	}
}

func TestBothKinds(t *testing.T) {
	for name, p := range map[string]*seccomp.Policy{"allowing": &allowing, "denying": &denying} {
		t.Run(name, func(t *testing.T) {
			seccomptest.CheckConditions(t, p)
			seccomptest.CheckForeign(t, p)
		})
	}
}

// Any policy means what its rules say: numbers and values are small, so that
// they collide.
func TestAnyPolicy(t *testing.T) {
	value := rapid.SampledFrom([]uint64{0, 1, 2, 3, 8, 1 << 31, 1 << 32, 1<<32 | 2, 1 << 63})
	cond := rapid.Custom(func(t *rapid.T) seccomp.Cond {
		mask := rapid.SampledFrom([]uint64{0, 1, 3, 1 << 63, 0xffff_ffff, 1<<64 - 1}).Draw(t, "mask")
		return seccomp.Cond{Arg: rapid.IntRange(0, 5).Draw(t, "arg"), Mask: mask, Value: value.Draw(t, "value") & mask}
	})
	action := rapid.SampledFrom([]seccomp.Action{seccomp.Allow, seccomp.Kill, eperm})
	rapid.Check(t, func(rt *rapid.T) {
		p := seccomp.Policy{Unlisted: action.Draw(rt, "unlisted"), Refused: action.Draw(rt, "refused")}
		rules := map[uintptr]seccomp.When{}
		for number := range uintptr(6) {
			if rapid.Bool().Draw(rt, "listed") {
				w := seccomp.When(rapid.SliceOfN(rapid.SliceOfN(cond, 0, 3), 0, 4).Draw(rt, "when"))
				rules[number] = w
				p.Rules = append(p.Rules, seccomp.Rule{Number: number, Allow: w})
			}
		}
		f := seccomptest.New(t, &p)
		number := rapid.Uintptr().Draw(rt, "number") % 8
		args := rapid.SliceOfN(value, 6, 6).Draw(rt, "args")
		want := p.Unlisted
		if w, ok := rules[number]; ok {
			want = p.Refused
			if seccomptest.Holds(w, args) {
				want = seccomp.Allow
			}
		}
		if got := f.Call(number, args...); got != want {
			rt.Errorf("call %d with %#x: %#x, want %#x", number, args, uint32(got), uint32(want))
		}
	})
}

// Values of one argument are a list of jumps, of which the first is the longest, up to a number of values; beyond that, and
// for values that differ above, each is an alternative of its own. The answers are the same.
func TestManyValues(t *testing.T) {
	for _, n := range []int{2, 199, 200, 201} {
		for name, values := range map[string][]uint64{"low": make([]uint64, n), "high": make([]uint64, n), "both": make([]uint64, n)} {
			for i := range n {
				values[i] = uint64(3 * i)
				if name == "high" || name == "both" && i%2 == 1 {
					values[i] |= 1 << 32
				}
			}
			f := seccomptest.New(t, &seccomp.Policy{
				Unlisted: seccomp.Allow, Refused: seccomp.Kill,
				Rules: []seccomp.Rule{{1, seccomp.OneOf(2, values...), ""}, {2, seccomp.Never, ""}},
			})
			for _, v := range values {
				for _, c := range []struct {
					value uint64
					want  seccomp.Action
				}{{v, seccomp.Allow}, {v ^ 1<<32, seccomp.Kill}, {v ^ 1<<63, seccomp.Kill}, {v + 1, seccomp.Kill}} {
					if got := f.Call(1, 2, 0, c.value); got != c.want {
						t.Fatalf("%s, %d values: %#x gives %#x, want %#x", name, n, c.value, uint32(got), uint32(c.want))
					}
				}
			}
			if got := f.Call(2, 0, 0, 0); got != seccomp.Kill {
				t.Errorf("%s, %d values: the next rule gives %#x", name, n, uint32(got))
			}
		}
	}
}

func TestBadPolicies(t *testing.T) {
	one := func(r ...seccomp.Rule) seccomp.Policy {
		return seccomp.Policy{Unlisted: seccomp.Kill, Refused: seccomp.Kill, Rules: r}
	}
	long := make([]seccomp.Cond, 13)
	many := make([]uint64, 2000)
	for name, p := range map[string]seccomp.Policy{
		"no action":         {Refused: seccomp.Kill},
		"no refusal":        {Unlisted: seccomp.Allow},
		"no error number":   {Unlisted: seccomp.Allow, Refused: seccomp.Errno(0)},
		"trace":             {Unlisted: unix.SECCOMP_RET_TRACE, Refused: seccomp.Kill},
		"twice":             one(seccomp.Rule{5, seccomp.Always, ""}, seccomp.Rule{5, seccomp.Never, ""}),
		"x32":               one(seccomp.Rule{0x4000_0005, seccomp.Always, ""}),
		"argument -1":       one(seccomp.Rule{5, seccomp.OneOf(-1, 0), ""}),
		"argument 6":        one(seccomp.Rule{5, seccomp.OneOf(6, 0), ""}),
		"value beyond mask": one(seccomp.Rule{5, seccomp.When{{{0, 1, 2}}}, ""}),
		"conditions":        one(seccomp.Rule{5, seccomp.When{long}, ""}),
		"instructions":      one(seccomp.Rule{5, seccomp.OneOf(0, many...), ""}),
	} {
		if _, err := p.Compile(); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
}
