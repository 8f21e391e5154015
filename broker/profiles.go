package broker

import (
	"path"
	"slices"
	"strings"

	"thaw/api"
)

// runtimeProfile is an entry of the catalogue that the server owns: an image, the
// interpreters in it, and the environment they run in. Users know it as the image;
// the wire calls it runtime.
type runtimeProfile struct {
	name         string
	image        string
	interpreters []interpreter
	env          []string
	defaults     api.Limits
}

// interpreter runs scripts of some file name endings.
type interpreter struct {
	name     string
	suffixes []string
	argv     []string // the script and its arguments follow
}

// outDir is where the job leaves its artifacts.
const outDir = "/workspace/out"

// outVariable tells the job of it.
const outVariable = "THAW_OUT"

var (
	python = interpreter{"python", []string{".py"}, []string{"/usr/bin/python3"}}
	node   = interpreter{"node", []string{".js", ".mjs", ".cjs"}, []string{"/usr/bin/node"}}
)

// baseEnv is what every job finds in its environment beside what its image brings
// (PATH, HOME, LANG and the runtimes' own), the agent (package launch) and the request
// add.
var baseEnv = []string{outVariable + "=" + outDir, "TMPDIR=/tmp", "USER=job", "LOGNAME=job"}

var baseDefaults = api.Limits{
	WallSeconds: 300, MemoryMiB: 512, CPUCores: 1, Pids: 256,
	WorkspaceBytes: 1 << 30, OutputBytes: 64 << 20, OutputFiles: 100, StdoutBytes: 1 << 20,
}

// profiles is every runtime profile.
var profiles = []runtimeProfile{
	{name: "python", image: "python", interpreters: []interpreter{python}, env: baseEnv, defaults: baseDefaults},
	{name: "node", image: "node", interpreters: []interpreter{node}, env: baseEnv, defaults: baseDefaults},
	{name: "dual", image: "dual", interpreters: []interpreter{python, node}, env: baseEnv, defaults: baseDefaults},
}

// networks are the network profiles there are: a job has no network.
var networks = []string{"none"}

func findProfile(name string) (runtimeProfile, *api.Error) {
	var names []string
	for _, p := range profiles {
		if p.name == name {
			return p, nil
		}
		names = append(names, p.name)
	}
	return runtimeProfile{}, api.Errorf(api.CodeUnknownProfile, "there is no image %q", name).
		WithRemedy("choose one of: %s", strings.Join(names, ", "))
}

// ImageFor names the image that a script is run with when nobody chooses: the
// first one of the catalogue that runs its kind of file.
func ImageFor(script string) (string, error) {
	var known []string
	for _, p := range profiles {
		if p.interpreter(script) != nil {
			return p.name, nil
		}
		for _, s := range p.suffixes() {
			if !slices.Contains(known, s) {
				known = append(known, s)
			}
		}
	}
	return "", api.Errorf(api.CodeRequestInvalid, "no image is known for %q", script).
		WithRemedy("name a script that ends in %s", strings.Join(known, ", "))
}

func findNetwork(name string) (string, *api.Error) {
	if name == "" {
		name = "none"
	}
	if !slices.Contains(networks, name) {
		return "", api.Errorf(api.CodeNetworkDenied, "there is no network profile %q: jobs have no network", name).
			WithRemedy("leave the network profile out, or name none")
	}
	return name, nil
}

// argv is the command line for a script.
func (p runtimeProfile) argv(script string, args []string) ([]string, *api.Error) {
	if i := p.interpreter(script); i != nil {
		return slices.Concat(i.argv, []string{script}, args), nil
	}
	return nil, api.Errorf(api.CodeRequestInvalid, "image %s does not run %q", p.name, script).
		WithRemedy("name a script that ends in %s, or another image", strings.Join(p.suffixes(), ", "))
}

// interpreter is what runs a script, nil when nothing does.
func (p runtimeProfile) interpreter(script string) *interpreter {
	for n := range p.interpreters {
		if slices.Contains(p.interpreters[n].suffixes, path.Ext(script)) {
			return &p.interpreters[n]
		}
	}
	return nil
}

func (p runtimeProfile) suffixes() []string {
	var out []string
	for _, i := range p.interpreters {
		out = append(out, i.suffixes...)
	}
	return out
}
