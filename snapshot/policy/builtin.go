package policy

import (
	"fmt"
	"strconv"
)

// never makes no checkpoint.
type never struct{}

func (never) Checkpoint(Step) bool { return false }
func (never) NeedsPages() bool     { return false }

// every makes a checkpoint after each n steps.
type every struct{ n int }

func (e every) Checkpoint(s Step) bool { return s.Since >= e.n }
func (every) NeedsPages() bool         { return false }

// changed makes a checkpoint when at least pages have changed since the last one, or
// anything was written to a disk. What is not known counts as changed.
type changed struct{ pages int64 }

func (c changed) Checkpoint(s Step) bool {
	return s.Pages < 0 || s.Pages >= c.pages || s.DiskBytes != 0
}
func (changed) NeedsPages() bool { return true }

func withoutArgument(p Policy) Maker {
	return func(arg string) (Policy, error) {
		if arg != "" {
			return nil, fmt.Errorf("policy: argument %.40q, none is taken: %w", arg, ErrPolicy)
		}
		return p, nil
	}
}

func makeEvery(arg string) (Policy, error) {
	n, err := strconv.Atoi(arg)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("policy: every %.40q steps, not a number from 1: %w", arg, ErrPolicy)
	}
	return every{n}, nil
}

// idlePages is more than a guest of a pvm host changed of itself in a second of a step that
// did nothing (62 at most), and less than the smallest cell, `pass`, changed (84 at least).
const idlePages = 72

func makeChanged(arg string) (Policy, error) {
	if arg == "" {
		return changed{idlePages}, nil
	}
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("policy: %.40q changed pages, not a number from 1: %w", arg, ErrPolicy)
	}
	return changed{n}, nil
}
