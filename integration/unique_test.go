package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thaw/broker/assets"
	"thaw/broker/berth"
	"thaw/broker/fleet"
	"thaw/broker/fold"
	"thaw/broker/journal"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/internal/hostinfo"
	"thaw/snapshot/store"
)

// Generators of each runtime, as expressions by name. Those that begin with
// "own" were made or seeded by the program, and must keep their state.
var generators = map[string]struct {
	prepare string
	draw    map[string]string
	loop    string // draws until the generation changes, and prints what it draws then; %s is a map
}{
	"python": {
		prepare: "import random, uuid, secrets, ssl, os, tempfile, numpy, hashlib, multiprocessing\n" +
			"own, own_numpy, own_pcg = random.Random(5), numpy.random.RandomState(5), numpy.random.default_rng(5)\n" +
			"random.random(), numpy.random.rand(), uuid.uuid1(), ssl.RAND_bytes(1)",
		draw: map[string]string{
			"random": "random.random()", "randint": "random.randint(0, 1 << 60)", "numpy": "float(numpy.random.rand())", "default_rng": "float(numpy.random.default_rng().random())",
			"uuid1": "str(uuid.uuid1())", "uuid1 sequence": "uuid.uuid1().clock_seq", "uuid4": "str(uuid.uuid4())", "secrets": "secrets.token_hex(8)", "ssl": "ssl.RAND_bytes(8).hex()",
			"urandom": "os.urandom(8).hex()", "tempfile": "next(tempfile._get_candidate_names())",
			"own": "own.random()", "own numpy": "float(own_numpy.rand())", "own pcg": "float(own_pcg.random())",
		},
		loop: "import json, random, uuid, secrets, ssl, os, tempfile, numpy\n" +
			"own, own_numpy, own_pcg = random.Random(5), numpy.random.RandomState(5), numpy.random.default_rng(5)\n" +
			"def generation():\n    with open('/run/thaw/generation') as f: return f.read()\n" +
			"first = generation()\nwhile generation() == first:\n    own.random(), random.random(), numpy.random.rand()\nprint(json.dumps(%s))",
	},
	"node": {
		prepare: "var nc = require('node:crypto'); Math.random(); nc.randomUUID(); nc.randomInt(5); nc.randomBytes(1); undefined",
		draw: map[string]string{
			"Math.random": "Math.random()", "randomUUID": "nc.randomUUID()", "web randomUUID": "globalThis.crypto.randomUUID()", "randomInt": "nc.randomInt(2 ** 47)",
			"randomBytes": "nc.randomBytes(8).toString('hex')", "getRandomValues": "globalThis.crypto.getRandomValues(new Uint32Array(2)).join()",
			"key": "nc.generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'der' }).toString('hex').slice(-16)",
		},
		loop: "const nc = require('node:crypto'), fs = require('node:fs');\nconst generation = () => fs.readFileSync('/run/thaw/generation', 'utf8');\n" +
			"const first = generation();\nwhile (generation() === first) { Math.random(); nc.randomUUID(); nc.randomInt(5); }\nconsole.log(JSON.stringify(%s));",
	},
}

// expression makes one of all draws.
func expression(draw map[string]string) string {
	var parts []string
	for name, e := range draw {
		parts = append(parts, fmt.Sprintf("%q: %s", name, e))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// TestUniqueness: what two forks of one checkpoint draw from the default
// generators differs, and what one machine draws before and after a rollback, in
// contexts that wait and in code that runs all the time; what the program seeded
// does not. TLS works at once in each.
func TestUniqueness(t *testing.T) {
	m := dualMachine(t)
	contexts, loops := map[string]uint64{}, map[string]uint64{}
	for runtime, g := range generators {
		contexts[runtime] = warmIn(t, m, runtime)
		cellIn(t, m, contexts[runtime], g.prepare)
		loops[runtime] = loopIn(t, m, runtime, fmt.Sprintf(g.loop, expression(g.draw)))
	}
	time.Sleep(time.Second)
	forks, saved, err := m.Fork(t.Context(), fleet.CheckpointSpec{}, []fleet.RestoreSpec{{}, {}})
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string][]map[string]any{}
	drawIn := func(m *fleet.Machine, restored bool) {
		for runtime, g := range generators {
			draw := expression(g.draw)
			if runtime == "python" {
				draw = "import json; print(json.dumps(" + draw + "))"
			} else {
				draw = "console.log(JSON.stringify(" + draw + "))"
			}
			drawn[runtime+" context"] = append(drawn[runtime+" context"], parse(t, cellIn(t, m, contexts[runtime], draw)))
			if restored {
				drawn[runtime+" loop"] = append(drawn[runtime+" loop"], parse(t, endIn(t, m, loops[runtime])))
			}
		}
	}
	for _, fork := range forks {
		closeMachine(t, fork)
		tlsIn(t, fork, contexts)
		drawIn(fork, true)
	}
	drawIn(m, false)
	if _, err := m.Rollback(t.Context(), saved.ID); err != nil {
		t.Fatal(err)
	}
	tlsIn(t, m, contexts)
	drawIn(m, true)
	for what, d := range drawn {
		if len(d[0]) < 7 || len(d) < 3 {
			t.Errorf("%s: only %v was drawn", what, d)
		}
		for name := range d[0] {
			seen := map[any]bool{}
			for _, values := range d {
				seen[values[name]] = true
			}
			own := strings.HasPrefix(name, "own")
			// A loop may have come to its end some steps later in one machine.
			if !own && len(seen) < len(d) || own && len(seen) > 1 && strings.HasSuffix(what, "context") {
				t.Errorf("%s: %s gives %v", what, name, seen)
			}
		}
	}
	if t.Failed() {
		t.Logf("%v", drawn)
	}
}

// A bit generator that a program gave to numpy's global generator is its own: it keeps its
// state, and the interpreter goes on although that cannot be seeded anew.
func TestOwnBitGenerator(t *testing.T) {
	m := dualMachine(t)
	warm := warmIn(t, m, "python")
	cellIn(t, m, warm, "import numpy; numpy.random.set_bit_generator(numpy.random.PCG64(5))")
	forks, _, err := m.Fork(t.Context(), fleet.CheckpointSpec{}, []fleet.RestoreSpec{{}})
	if err != nil {
		t.Fatal(err)
	}
	closeMachine(t, forks[0])
	const draw = "print(numpy.random.rand())"
	if a, b := cellIn(t, m, warm, draw), cellIn(t, forks[0], warm, draw); !bytes.Equal(a, b) || len(a) == 0 {
		t.Errorf("the machine draws %q, its fork %q", a, b)
	}
}

// dualMachine is a machine of the image that has both interpreters.
func dualMachine(t *testing.T) *fleet.Machine {
	t.Helper()
	f := newFleet(t)
	template, err := f.Template(t.Context(), "dual", fleet.Class{MemoryMiB: 1024, VCPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.Restore(t.Context(), fleet.RestoreSpec{Snapshot: template})
	if err != nil {
		t.Fatal(err)
	}
	closeMachine(t, m)
	return m
}

func newFleet(t *testing.T) *fleet.Fleet {
	t.Helper()
	kernels(t)
	dir := t.TempDir()
	set, err := assets.New(assets.Config{Kernel: "tuned", Init: filepath.Join(bin, "thaw-init")})
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	s, err := store.Open(store.Options{Root: filepath.Join(t.TempDir(), "store"), Folder: fold.Disks{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	host := hostinfo.Detect()
	yard, err := berth.NewYard(j, host.Cgroup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { yard.Close() })
	f, err := fleet.New(fleet.Config{
		VMM: filepath.Join(bin, "thaw-vmm"), Init: filepath.Join(bin, "thaw-init"), Assets: set, Yard: yard,
		Store: s, Host: host, Dev: true, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		// Other machines of this test keep the processors busy.
		AckTimeout: 20 * time.Second, FreezeTimeout: 20 * time.Second, Pool: fleet.Pool{Rehearsed: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func closeMachine(t *testing.T, m *fleet.Machine) {
	t.Helper()
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func warmIn(t *testing.T, m *fleet.Machine, runtime string) uint64 {
	t.Helper()
	w, err := m.Agent().Warm(t.Context(), agentproto.WarmRequest{Runtime: runtime})
	if err != nil {
		t.Fatal(err)
	}
	return w.ExecID
}

func cellIn(t *testing.T, m *fleet.Machine, id uint64, source string) []byte {
	t.Helper()
	var out, errOut bytes.Buffer
	res, err := m.Agent().Code(t.Context(), agentproto.CodeRequest{ExecID: id, Source: source}, agentclient.ExecIO{Stdout: &out, Stderr: &errOut})
	if err != nil || res.Status != agentproto.CellOK {
		t.Fatalf("cell %q: %+v, %v\n%s", source, res, err, errOut.Bytes())
	}
	return out.Bytes()
}

// loopIn runs a program in a warm interpreter and leaves it running.
func loopIn(t *testing.T, m *fleet.Machine, runtime, source string) uint64 {
	t.Helper()
	name := map[string]string{"python": "loop.py", "node": "loop.js"}[runtime]
	if err := m.Agent().PutFile(t.Context(), name, 0o644, int64(len(source)), strings.NewReader(source)); err != nil {
		t.Fatal(err)
	}
	id := warmIn(t, m, runtime)
	argv := []string{map[string]string{"python": "python3", "node": "/usr/bin/node"}[runtime], name}
	p, err := m.Agent().Run(t.Context(), agentproto.RunRequest{ExecID: id, Argv: argv}, agentclient.ExecIO{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Started().Cold != "" {
		t.Fatalf("cold because of %q", p.Started().Cold)
	}
	p.Abandon()
	return id
}

// endIn waits for the loop's end and returns what it printed.
func endIn(t *testing.T, m *fleet.Machine, id uint64) []byte {
	t.Helper()
	var out, errOut bytes.Buffer
	p, err := m.Agent().Attach(t.Context(), id, agentclient.ExecIO{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(); err != nil || st.Code != 0 {
		t.Fatalf("%+v, %v\n%s", st, err, errOut.Bytes())
	}
	return out.Bytes()
}

func parse(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return m
}
