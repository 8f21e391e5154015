package vmmchild

// growStack makes the goroutine's stack as large as a restore needs, in one step: else it is copied at each doubling, and for
// each size the runtime takes a set of stacks.
func growStack()
