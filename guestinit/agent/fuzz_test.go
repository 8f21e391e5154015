package agent_test

import (
	"context"
	"io"
	"testing"
	"time"

	"thaw/guestinit/agent"
	"thaw/guestinit/agentproto"
)

// FuzzServer gives the agent arbitrary bytes from a host. Execs are kept out:
// they would run whatever the fuzzer finds.
func FuzzServer(f *testing.F) {
	add := func(frames ...func(b []byte) []byte) {
		var b []byte
		for _, fr := range frames {
			b = fr(b)
		}
		f.Add(b)
	}
	msg := func(t agentproto.FrameType, v any) func([]byte) []byte {
		return func(b []byte) []byte {
			out, err := agentproto.AppendMessage(b, t, v)
			if err != nil {
				f.Fatal(err)
			}
			return out
		}
	}
	data := func(t agentproto.FrameType, flags uint8, p string) func([]byte) []byte {
		return func(b []byte) []byte {
			out, err := agentproto.AppendFrame(b, t, flags, []byte(p))
			if err != nil {
				f.Fatal(err)
			}
			return out
		}
	}
	add(msg(agentproto.FramePing, agentproto.Ping{Nonce: 5}), msg(agentproto.FrameInfo, nil), msg(agentproto.FrameUsage, nil))
	add(msg(agentproto.FramePut, agentproto.PutRequest{Path: "a/b", Size: -1, Mode: 0o600}), data(agentproto.FramePutData, agentproto.FlagEnd, "abc"))
	add(msg(agentproto.FrameGet, agentproto.GetRequest{Path: "a/b", Max: 9}))
	add(msg(agentproto.FrameList, agentproto.ListRequest{Max: 5}))
	add(data(agentproto.FrameStdin, agentproto.FlagEnd, "x"), msg(agentproto.FrameSignal, agentproto.Signal{Number: 9}), msg(agentproto.FrameCancel, nil))
	add(msg(agentproto.FrameFreeze, agentproto.FreezeRequest{Wait: time.Millisecond}), msg(agentproto.FrameInfo, nil), msg(agentproto.FrameThaw, nil))
	add(msg(agentproto.FrameGeneration, agentproto.Generation{
		Number: 1, Seed: make([]byte, agentproto.SeedSize), Wall: time.Now().UnixNano(), Hostname: "h", MachineID: make([]byte, agentproto.MachineIDSize),
	}), msg(agentproto.FrameThaw, nil))
	add(msg(agentproto.FrameAttach, agentproto.AttachRequest{ExecID: 1}), data(agentproto.FrameStdin, 0, "x"))
	fx := newFixture(f, func(c *agent.Config) { c.Log = func(string, ...any) {} })
	f.Fuzz(func(t *testing.T, wire []byte) {
		for off := 0; off+agentproto.HeaderSize <= len(wire); {
			switch agentproto.FrameType(wire[off]) {
			case agentproto.FrameExec, agentproto.FrameShutdown:
				t.Skip("runs programs, or ends the agent")
			case agentproto.FrameFreeze:
				n := min(int(wire[off+4])|int(wire[off+5])<<8, len(wire)-off-agentproto.HeaderSize)
				var req agentproto.FreezeRequest
				if agentproto.Decode(wire[off+agentproto.HeaderSize:][:n], &req) == nil && (req.DropCaches || req.ReportFree) {
					t.Skip("would drop this host's caches")
				}
			}
			n := int(wire[off+4]) | int(wire[off+5])<<8 | int(wire[off+6])<<16 | int(wire[off+7])<<24
			if n < 0 || n > agentproto.MaxPayload {
				break
			}
			off += agentproto.HeaderSize + n
		}
		c, err := fx.dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		go func() {
			_, _ = c.Write(wire)
			if cw, ok := c.(interface{ CloseWrite() error }); ok {
				_ = cw.CloseWrite()
			}
		}()
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Logf("read: %v", err)
		}
		if err := fx.client.Ping(context.Background()); err != nil {
			t.Fatalf("the agent does not answer: %v", err)
		}
	})
}
