package checkpoint

import (
	"fmt"
	"math/rand/v2"
)

// searchPlan is a tree search: nodes are numbered in the order in which they are made, and
// 0 is the root. Each expansion works on the current node and makes a child of it, which
// is the current node then; a rollback makes an earlier one current.
type searchPlan struct {
	parent []int // of each node; the root is its own
	back   []int // node to go back to after each node, or -1
}

// newSearchPlan makes a plan with so many expansions and rollbacks, always the same.
func newSearchPlan(expansions, rollbacks int) (searchPlan, error) {
	if expansions < 1 || rollbacks < 0 || rollbacks >= expansions {
		return searchPlan{}, fmt.Errorf("checkpoint: %d expansions with %d rollbacks in between are not possible", expansions, rollbacks)
	}
	random := rand.New(rand.NewPCG(100, 49))
	p := searchPlan{parent: make([]int, expansions+1), back: make([]int, expansions+1)}
	for i := range p.back {
		p.back[i] = -1
	}
	// After which nodes; not after the last one, whose result would not be used.
	for _, i := range random.Perm(expansions - 1)[:rollbacks] {
		p.back[i+1] = 0
	}
	current := 0
	for node := 1; node <= expansions; node++ {
		p.parent[node] = current
		current = node
		if p.back[node] >= 0 {
			current = random.IntN(node)
			p.back[node] = current
		}
	}
	return p, nil
}

// path lists the nodes from the child of an ancestor to a node, in that order.
func (p searchPlan) path(ancestor, node int) []int {
	var list []int
	for ; node != ancestor; node = p.parent[node] {
		list = append([]int{node}, list...)
	}
	return list
}
