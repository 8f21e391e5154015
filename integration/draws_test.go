package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/kernel"
	"thaw/vmm/vmmproc"
)

// TestKernelDrawsDiffer: two machines of one checkpoint, and one machine before
// and after a rollback, draw other random numbers, in a program that was running
// and in one that was started after, and go by other names.
func TestKernelDrawsDiffer(t *testing.T) {
	each(t, []shape{{1, 512}, {2, 512}}, func(t *testing.T, k *kernel.Kernel, s shape) {
		c := template(t, k, s, nil)
		b := restore(t, c, nil)
		client, _, _ := b.awaken(t, 0)
		id, out := launch(t, client, "draws.py")
		out.await(t, "up")
		freeze(t, client)
		saved := b.save(t, vmmproc.SaveSpec{Resume: true})
		seen := map[string]string{}
		note := func(t *testing.T, who string, c *agentclient.Client, g agentproto.Generation) {
			t.Helper()
			var drawn map[string]string
			attach(t, c, id).result(t, &drawn)
			if drawn["hostname"] != g.Hostname || drawn["machine id"] != fmt.Sprintf("%x", g.MachineID) {
				t.Errorf("%s: is %q with id %q, want %q and %x", who, drawn["hostname"], drawn["machine id"], g.Hostname, g.MachineID)
			}
			var fresh map[string]string
			if err := json.Unmarshal([]byte(shell(t, c, drawOnce)), &fresh); err != nil {
				t.Fatal(err)
			}
			if len(drawn) != 6 || len(fresh) != 4 {
				t.Errorf("%s: drawn %v, %v", who, drawn, fresh)
			}
			for _, m := range []map[string]string{drawn, fresh} {
				for name, v := range m {
					if other, ok := seen[v]; ok {
						t.Errorf("%s: %s of %s is as that of %s", who, name, v, other)
					}
					seen[v] = who
				}
			}
		}
		for i := range 2 {
			who := fmt.Sprintf("machine %d", i)
			other := restore(t, saved, nil)
			otherClient, g, _ := other.awaken(t, 0)
			note(t, who, otherClient, g)
		}
		for i := range 2 {
			b.rollback(t, saved)
			client, g, _ := b.awaken(t, 0)
			note(t, fmt.Sprintf("rollback %d", i), client, g)
		}
	})
}

// drawOnce is a program that starts after the restore.
const drawOnce = `python3 -c 'import json, os, uuid, secrets
print(json.dumps({"getrandom": os.getrandom(16).hex(), "uuid1": str(uuid.uuid1()), "uuid4": str(uuid.uuid4()), "secrets": secrets.token_hex(16)}))'`

// TestGuestSeesNewMachine: the kernel learns (from VMGenID) that it runs in another
// machine, before anybody tells it anything: after each restore and
// each rollback, and not when it just goes on.
func TestGuestSeesNewMachine(t *testing.T) {
	each(t, []shape{{2, 512}}, func(t *testing.T, k *kernel.Kernel, s shape) {
		c := template(t, k, s, func(m *vmmproc.Spec) {
			m.Cmdline = strings.Replace(m.Cmdline, "loglevel=2", "loglevel=6", 1)
		})
		b := restore(t, c, nil)
		told := func() int {
			console, err := b.Console(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return bytes.Count(console, []byte("crng reseeded due to virtual machine fork"))
		}
		for n := range 3 {
			if err := b.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); told() <= n; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					console, _ := b.Console(t.Context())
					t.Fatalf("kernel was told %d times of %d:\n%s", told(), n+1, console)
				}
			}
			if err := b.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := b.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			if got := told(); got != n+1 {
				t.Errorf("kernel was told %d times of %d", got, n+1)
			}
			b.rollback(t, c)
		}
	})
}

// TestGenerationInterrupt: the tuned kernel hears of a generation by VMGenID's own
// interrupt, and by nothing beside it; another by that of the event device.
func TestGenerationInterrupt(t *testing.T) {
	each(t, []shape{{1, 512}}, func(t *testing.T, k *kernel.Kernel, s shape) {
		c := template(t, k, s, nil)
		b := restore(t, c, nil)
		client, _, _ := b.awaken(t, 0)
		got := map[string]string{}
		for line := range strings.Lines(shell(t, client, "cat /proc/interrupts")) {
			for _, name := range []string{"vmgenid", "ACPI:Ged"} {
				if strings.Contains(line, name) {
					got[name] = strings.Fields(line)[1]
				}
			}
		}
		want := map[string]string{"ACPI:Ged": "1"}
		if k.Manifest.Name == kernel.NameTuned {
			want = map[string]string{"ACPI:Ged": "0", "vmgenid": "1"}
		}
		if !maps.Equal(got, want) {
			t.Errorf("interrupts after a generation: %v, not %v", got, want)
		}
	})
}
