// Package policy decides when a machine is checkpointed, and keeps a record of each
// checkpoint (requirement B10).
//
// A policy is a small thing with a name. A researcher adds one by Register, from an
// init function or main, and selects it by name; see Step for what it is told.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ErrPolicy says that there is no policy of this name, or that it does not take
// these arguments.
var ErrPolicy = errors.New("unknown checkpoint policy")

// Step is what a policy is told when a step of a machine has ended: a cell, an exec, or
// an action of an agent.
type Step struct {
	N     int // steps since the machine was made or restored, from 1
	Since int // steps since the last checkpoint, this one counted
	// Pages is how many pages steps have changed since the last checkpoint, and DiskBytes
	// what was written to disks meanwhile: what the guest did between steps is left out, as
	// far as that can be told apart. -1: not known.
	Pages     int64
	DiskBytes int64
}

// Policy decides after each step. It is asked by one goroutine at a time; each machine
// has a policy of its own.
type Policy interface {
	// Checkpoint says whether the machine is to be checkpointed now.
	Checkpoint(Step) bool
	// NeedsPages says whether Step.Pages is looked at: counting them costs a scan.
	NeedsPages() bool
}

// Maker makes a policy from its argument, which is "" if none was given. Errors wrap
// ErrPolicy.
type Maker func(arg string) (Policy, error)

var (
	mu     sync.RWMutex
	makers = map[string]Maker{ // protected by mu
		"never":        withoutArgument(never{}),
		"every-step":   withoutArgument(every{1}),
		"every":        makeEvery,
		"when-changed": makeChanged,
	}
)

// Register adds a policy. A name that is taken, or has a colon in it, is a mistake of
// the program: it panics.
func Register(name string, m Maker) {
	mu.Lock()
	defer mu.Unlock()
	if makers[name] != nil || name == "" || strings.Contains(name, ":") {
		panic("policy: register " + strconv.Quote(name) + ": taken or malformed")
	}
	makers[name] = m
}

// Names lists the policies, in order.
func Names() []string {
	mu.RLock()
	defer mu.RUnlock()
	return slices.Sorted(maps.Keys(makers))
}

// Parse makes the policy that spec names: NAME or NAME:ARGUMENT, such as "never",
// "every-step", "every:5", "when-changed:256". The error wraps ErrPolicy.
func Parse(spec string) (Policy, error) {
	name, arg, _ := strings.Cut(spec, ":")
	mu.RLock()
	m := makers[name]
	mu.RUnlock()
	if m == nil {
		return nil, fmt.Errorf("policy: %.40q is none of %s: %w", spec, strings.Join(Names(), ", "), ErrPolicy)
	}
	return m(arg)
}
