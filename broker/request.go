package broker

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/inputs"
)

// plan is a request that has been checked, with everything looked up.
type plan struct {
	request api.JobRequest
	runtime runtimeProfile
	network string
	limits  api.Limits
	argv    []string
	env     []string
	inputs  []placedInput

	interpreter string // that argv starts
	class       Class  // of the template to restore; zero: the machine is booted
	whyCold     string // although there are templates
}

// placedInput is a pinned input and its path below /workspace.
type placedInput struct {
	name string
	inputs.Input
}

// Bounds of a request beyond those in its schema, in bytes. What is passed to the
// guest in one message must fit into a frame of its protocol.
const (
	maxArgBytes = 32 << 10
	maxEnvBytes = 16 << 10
)

// need is what the plan takes from the host.
func (p plan) need() admission.Need {
	return admission.Need{
		// A job whose template is missing is booted with less than its class has.
		MemoryMiB: max(machineMiB(p.limits.MemoryMiB), p.class.MemoryMiB) + VMMMiB,
		DiskBytes: p.limits.WorkspaceBytes + p.limits.OutputBytes,
		CPUMilli:  int64(p.limits.CPUCores * 1000),
		Machines:  1,
	}
}

func (p plan) vcpus() int { return int(math.Ceil(p.limits.CPUCores)) }

// newPlan checks a request. It does not look at handles: pinInputs does.
func newPlan(r api.JobRequest, most api.Limits) (plan, *api.Error) {
	p := plan{request: r}
	var err *api.Error
	if p.runtime, err = findProfile(r.Runtime); err != nil {
		return p, err
	}
	if p.network, err = findNetwork(r.Network); err != nil {
		return p, err
	}
	if p.limits, err = resolveLimits(r.Limits, p.runtime.defaults, most); err != nil {
		return p, err
	}
	if err = checkNames(r); err != nil {
		return p, err
	}
	if p.argv, err = p.runtime.argv(r.Script, r.Args); err != nil {
		return p, err
	}
	p.interpreter = p.runtime.interpreter(r.Script).name
	if err = checkArgs(r.Args); err != nil {
		return p, err
	}
	if p.env, err = environment(p.runtime.env, r.Env); err != nil {
		return p, err
	}
	return p, checkTypes(r.OutputTypes)
}

// checkNames checks where inputs go and that the script is among them.
func checkNames(r api.JobRequest) *api.Error {
	seen := map[string]bool{}
	for _, in := range r.Inputs {
		if err := api.CheckPath(in.Name); err != nil {
			return api.Errorf(api.CodeRequestInvalid, "input name %q is refused", in.Name).WithCause(err)
		}
		if first, _, _ := strings.Cut(in.Name, "/"); first == "out" {
			return api.Errorf(api.CodeRequestInvalid, "input name %q is refused: /workspace/out is for outputs", in.Name).
				WithRemedy("give the input another name")
		}
		if seen[in.Name] {
			return api.Errorf(api.CodeRequestInvalid, "two inputs are named %q", in.Name)
		}
		seen[in.Name] = true
	}
	if strings.HasPrefix(r.Script, "-") {
		return api.Errorf(api.CodeRequestInvalid, "script name %q is refused: the interpreter would take it for an option", r.Script).
			WithRemedy("give the script another name")
	}
	if !seen[r.Script] {
		return api.Errorf(api.CodeScriptMissing, "script %q is not among the inputs", r.Script).
			WithRemedy("upload the script and name it in inputs")
	}
	return nil
}

func checkArgs(args []string) *api.Error {
	total := 0
	for _, a := range args {
		if strings.ContainsRune(a, 0) {
			return api.Errorf(api.CodeRequestInvalid, "an argument holds a zero byte")
		}
		total += len(a) + 1
	}
	if total > maxArgBytes {
		return api.Errorf(api.CodeRequestInvalid, "arguments have %d bytes; at most %d are possible", total, maxArgBytes).
			WithRemedy("pass large data as an input file")
	}
	return nil
}

// environment adds the request's variables to the profile's, which they may
// replace, but for the one that says where artifacts are taken from.
func environment(base []string, extra map[string]string) ([]string, *api.Error) {
	env := slices.Clone(base)
	total := 0
	for k, v := range extra {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return nil, api.Errorf(api.CodeRequestInvalid, "environment variable %q is refused", k).
				WithRemedy("a name is not empty and holds no =, and neither name nor value a zero byte")
		}
		if k == outVariable {
			return nil, api.Errorf(api.CodeRequestInvalid, "environment variable %s is the broker's", k).
				WithRemedy("artifacts are taken from %s: write them there", outDir)
		}
		total += len(k) + len(v) + 2
		env = slices.DeleteFunc(env, func(have string) bool { return strings.HasPrefix(have, k+"=") })
		env = append(env, k+"="+v)
	}
	if total > maxEnvBytes {
		return nil, api.Errorf(api.CodeRequestInvalid, "environment has %d bytes; at most %d are possible", total, maxEnvBytes)
	}
	slices.SortFunc(env, cmp.Compare[string])
	return env, nil
}

func checkTypes(types []string) *api.Error {
	for _, t := range types {
		family, sub, ok := strings.Cut(t, "/")
		if !ok || family == "" || sub == "" || strings.ContainsAny(t, " ;\t") {
			return api.Errorf(api.CodeRequestInvalid, "output type %q is not a media type", t).WithRemedy("write it like text/csv or image/*")
		}
	}
	return nil
}

// pinInputs looks up the plan's handles and keeps them until unpinInputs.
func (b *Broker) pinInputs(tenant string, p *plan) *api.Error {
	var total int64
	for _, ref := range p.request.Inputs {
		in, err := b.inputs.Pin(tenant, ref.Input)
		if err != nil {
			b.unpinInputs(p)
			return api.Errorf(api.CodeUnknownInput, "input %q of %q is not known", ref.Input, ref.Name).
				WithRemedy("upload it again: handles expire and end with the daemon")
		}
		p.inputs = append(p.inputs, placedInput{ref.Name, in})
		total += in.Size
	}
	if total > p.limits.WorkspaceBytes {
		b.unpinInputs(p)
		return api.Errorf(api.CodeInputTooLarge, "inputs have %d bytes and the disk %d", total, p.limits.WorkspaceBytes).
			WithCause(fmt.Errorf("limit workspace_bytes is %d", p.limits.WorkspaceBytes)).WithRemedy("raise limit workspace_bytes")
	}
	return nil
}

func (b *Broker) unpinInputs(p *plan) {
	for _, in := range p.inputs {
		b.inputs.Unpin(in.ID)
	}
	p.inputs = nil
}
