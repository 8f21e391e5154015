package rootfs

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// recipeFS holds what goes into images, and the two programs that run inside
// the tree while it is made.
//
//go:embed recipe
var recipeFS embed.FS

// recipe is recipe/recipe.json.
type recipe struct {
	Suite        string              `json:"suite"`
	Architecture string              `json:"architecture"`
	Epoch        int64               `json:"epoch"`  // time of every file, in seconds since 1970
	Debian       map[string][]string `json:"debian"` // component → packages asked for
	Python       struct {
		Version      string   `json:"version"`
		Requirements []string `json:"requirements"`
		Platforms    []string `json:"platforms"` // wheel tags that Debian's libc satisfies
	} `json:"python"`
	Exclude []string                     `json:"exclude"` // never unpacked by dpkg
	Include []string                     `json:"include"` // exceptions to Exclude
	Remove  []string                     `json:"remove"`  // globs removed from the finished Debian tree
	Env     map[string]map[string]string `json:"env"`     // "", "python", "node" → environment of jobs
}

// Components of the Debian layer: sets of packages that the lock names apart.
const (
	componentBase         = "base"
	componentPython       = "python"        // interpreter and fonts
	componentPythonDebian = "python-debian" // libraries, where PyPI is not reached
	componentNodeDebian   = "node-debian"   // Node, where npm's registry is not reached
	componentBench        = "bench"         // load generators, in no image for jobs
)

// benchImage is the name of the image whose guests are measured beside QEMU's.
const benchImage = "bench"

func loadRecipe() (recipe, error) {
	var r recipe
	raw, err := recipeFS.ReadFile("recipe/recipe.json")
	if err != nil {
		return r, fmt.Errorf("rootfs: read recipe: %w", err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("rootfs: parse recipe: %w", err)
	}
	return r, nil
}

// time is the modification time of every file in an image. It is after 1980
// because zip archives made from such files cannot hold an earlier one.
func (r recipe) time() time.Time { return time.Unix(r.Epoch, 0).UTC() }

// packages returns the Debian packages asked for by components, sorted.
func (r recipe) packages(components []string) []string {
	var all []string
	for _, c := range components {
		all = append(all, r.Debian[c]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// plan says which sources an image is made from.
type plan struct {
	name   string
	python Source // "" when the image has no Python
	node   Source
}

// components returns the components of the plan's Debian layer.
func (p plan) components() []string {
	c := []string{componentBase}
	if p.python != "" {
		c = append(c, componentPython)
	}
	if p.python == SourceDebian {
		c = append(c, componentPythonDebian)
	}
	if p.node == SourceDebian {
		c = append(c, componentNodeDebian)
	}
	if p.name == benchImage {
		c = append(c, componentBench)
	}
	return c
}

// env returns the environment that the image's jobs start with.
func (r recipe) env(p plan) map[string]string {
	env := maps.Clone(r.Env[""])
	if p.python != "" {
		maps.Copy(env, r.Env["python"])
	}
	if p.node != "" {
		maps.Copy(env, r.Env["node"])
	}
	return env
}
