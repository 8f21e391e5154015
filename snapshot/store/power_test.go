package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// powerDisk is the model of a disk under the store: what programs see of it, and what
// is left of that when the power fails.
type powerDisk struct {
	root    *node
	pending []change
}

// node is a file or a folder: as programs see it, and as it is on the disk.
type node struct {
	id       int
	children map[string]*node // of a folder, nil of a file
	data     []byte
	kept     map[string]*node // children that were synced
	keptData []byte
}

// change is one of names that is not on the disk yet.
type change struct {
	from, to         *node // folders; nil: none
	fromName, toName string
	what             *node
}

func (d *powerDisk) folder(path string) (*node, string) {
	n := d.root
	dir, name := filepath.Split(path)
	for _, part := range strings.Split(filepath.Clean(dir), "/") {
		if part != "." && part != "" {
			n = n.children[part]
		}
	}
	return n, name
}

func (d *powerDisk) find(path string) *node {
	if path == "." {
		return d.root
	}
	dir, name := d.folder(path)
	if dir == nil {
		return nil
	}
	return dir.children[name]
}

// load makes the model of a tree, all of it on the disk.
func (d *powerDisk) load(t *testing.T, path string, ids *int) *node {
	*ids++
	n := &node{id: *ids}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !info.IsDir() {
		if n.data, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		n.keptData = bytes.Clone(n.data)
		return n
	}
	n.children, n.kept = map[string]*node{}, map[string]*node{}
	list, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		c := d.load(t, filepath.Join(path, e.Name()), ids)
		n.children[e.Name()], n.kept[e.Name()] = c, c
	}
	return n
}

// do carries out one operation, as programs see it.
func (d *powerDisk) do(t *testing.T, op fileOp, ids *int) {
	dir, name := d.folder(op.path)
	n := d.find(op.path)
	switch op.call {
	case "create", "mkdir":
		if n != nil {
			return
		}
		*ids++
		n = &node{id: *ids}
		if op.call == "mkdir" {
			n.children, n.kept = map[string]*node{}, map[string]*node{}
		}
		dir.children[name] = n
		d.pending = append(d.pending, change{to: dir, toName: name, what: n})
	case "remove":
		delete(dir.children, name)
		d.pending = append(d.pending, change{from: dir, fromName: name, what: n})
	case "rename":
		to, toName := d.folder(op.to)
		delete(dir.children, name)
		to.children[toName] = n
		d.pending = append(d.pending, change{from: dir, fromName: name, to: to, toName: toName, what: n})
	case "truncate":
		n.data = append(n.data, make([]byte, max(0, op.size-int64(len(n.data))))...)[:op.size]
	case "write":
		at := op.at
		if at < 0 {
			at = int64(len(n.data))
		}
		end := at + int64(len(op.bytes))
		n.data = append(n.data, make([]byte, max(0, end-int64(len(n.data))))...)
		copy(n.data[at:], op.bytes)
	case "sync":
		if n.children == nil {
			n.keptData = bytes.Clone(n.data)
			return
		}
		// Names in this folder are kept from now on, and nothing else is: a rename
		// between two folders is one change.
		d.pending = slices.DeleteFunc(d.pending, func(c change) bool {
			if c.from != n && c.to != n {
				return false
			}
			c.keep()
			return true
		})
	default:
		t.Fatalf("operation %s", op.call)
	}
}

func (c change) keep() {
	if c.from != nil && c.from.kept[c.fromName] == c.what {
		delete(c.from.kept, c.fromName)
	}
	if c.to != nil {
		c.to.kept[c.toName] = c.what
	}
}

// view is one of the ways in which a disk may be found.
type view struct {
	name        string
	names, data bool   // that were not synced are there
	some        uint64 // of the unsynced changes of names, by bit: those that are there
}

// write makes the tree that is found after the power failed, below path, and describes it.
func (n *node) write(t *testing.T, path string, v view, seen *strings.Builder) {
	if n.children == nil {
		b := n.keptData
		if v.data {
			b = n.data
		}
		fmt.Fprintf(seen, "%s %x\n", path, sha256.Sum256(b))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	children := n.kept
	if v.names {
		children = n.children
	}
	for name, c := range children {
		c.write(t, filepath.Join(path, name), v, seen)
	}
}

// clone copies the model's names and data, so that pending changes can be kept in it.
func (d *powerDisk) clone() *powerDisk {
	copies := map[*node]*node{}
	var copyOf func(n *node) *node
	copyOf = func(n *node) *node {
		if n == nil || copies[n] != nil {
			return copies[n]
		}
		c := &node{id: n.id, data: n.data, keptData: n.keptData}
		copies[n] = c
		if n.children != nil {
			c.children, c.kept = map[string]*node{}, map[string]*node{}
			for name, child := range n.children {
				c.children[name] = copyOf(child)
			}
			for name, child := range n.kept {
				c.kept[name] = copyOf(child)
			}
		}
		return c
	}
	out := &powerDisk{root: copyOf(d.root)}
	for _, p := range d.pending {
		out.pending = append(out.pending, change{from: copyOf(p.from), to: copyOf(p.to), fromName: p.fromName, toName: p.toName, what: copyOf(p.what)})
	}
	return out
}

// The power fails after any file operation of any operation of the store, and the disk
// is found with all of what was done until then; with its names but not the data
// that was not synced; with what was synced alone; or with that and any of the names. The
// store has the old state or the new one, and the new one when the caller was told.
//
// What it does not cover: a file that was not synced is found with what was synced or with
// all of it, never with other bytes; a rename between two folders is found in both or
// in none; and a disk that says that it has what it has not.
func TestPowerFails(t *testing.T) {
	tree := memoryDir(t)
	k := crashStart(t, tree)
	for op, want := range crashOps {
		t.Run(op, func(t *testing.T) {
			root := copyTree(t, tree)
			ids := 0
			d := &powerDisk{}
			d.root = d.load(t, tree, &ids)
			ops := trace(t, op, root)
			if len(ops) < 5 {
				t.Fatalf("only %d operations on files", len(ops))
			}
			rng := rand.New(rand.NewPCG(8, uint64(len(ops))))
			seen := map[string]int{}
			last := -1
			for i, o := range ops {
				d.do(t, o, &ids)
				if o.call == "write" && rng.IntN(8) > 0 {
					continue // most differ only in how much of a file is there
				}
				views := []view{
					{"all", true, true, 0}, {"names", true, false, 0}, {"synced", false, false, 0},
					{"some names", false, false, rng.Uint64()}, {"other names", false, false, rng.Uint64()},
				}
				for _, v := range views {
					if n := d.judge(t, k, v, seen); n != 4 && n != want.after {
						t.Errorf("after %d of %d (%s %s), %s: %d snapshots, neither 4 nor %d", i+1, len(ops), o.call, o.path, v.name, n, want.after)
					} else if v.name == "synced" {
						last = n
					}
				}
			}
			if last != want.after {
				t.Errorf("told of success, %d snapshots are on the disk, not %d", last, want.after)
			}
			if want.done != nil {
				root := memoryDir(t)
				d.root.write(t, root, view{}, &strings.Builder{})
				if s := open(t, root); !want.done(s, k.ids) {
					t.Error("told of success, and it is not on the disk")
				}
			}
			t.Logf("%d operations, %d different disks", len(ops), len(seen))
		})
	}
}

// judge opens the store as it is found, unless it was found so before, and returns how
// many snapshots it has.
func (d *powerDisk) judge(t *testing.T, k known, v view, seen map[string]int) int {
	t.Helper()
	at := d
	if v.some > 0 {
		at = d.clone()
		for i, c := range at.pending {
			if v.some>>(i%64)&1 != 0 {
				c.keep()
			}
		}
	}
	root, err := os.MkdirTemp(memoryRoot(), "store-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	var list strings.Builder
	at.root.write(t, root, v, &list)
	parts := strings.Split(strings.ReplaceAll(list.String(), root, ""), "\n")
	slices.Sort(parts)
	key := strings.Join(parts, "\n")
	n, known := seen[key]
	if !known {
		n = judgeCrash(t, root, k)
		seen[key] = n
	}
	return n
}
