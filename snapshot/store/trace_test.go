package store

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// fileOp is one operation on the store's files, as the kernel was asked for it.
type fileOp struct {
	call  string // create, mkdir, rename, remove, write, truncate, sync
	path  string // relative to the store
	to    string // of a rename
	at    int64  // of a write; -1: behind the last
	bytes []byte // of a write
	size  int64  // of a truncate
}

// traced are the system calls that change files, or make them durable. What else might is
// traced too, to fail rather than to be missed.
const traced = "openat,mkdirat,mkdir,rename,renameat,renameat2,unlinkat,unlink,rmdir,fsync,fdatasync,ftruncate,fallocate," +
	"write,writev,pwrite64,pwritev,pwritev2,copy_file_range,sendfile,splice,linkat,symlinkat,link,symlink,sync,syncfs"

// trace runs an operation in a process of its own and returns what it did to root.
func trace(t *testing.T, op, root string) []fileOp {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace: file operations cannot be recorded")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(memoryDir(t), "trace")
	cmd := exec.Command(strace, "-f", "-y", "-xx", "-s", "4000000", "-o", out, "-e", "signal=none", "-e", "trace="+traced, self)
	cmd.Env = append(os.Environ(), crashOp+"="+op, crashRoot+"="+root, crashAt+"=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		if bytes.Contains(b, []byte("ptrace")) {
			t.Skipf("processes cannot be traced here: %s", b)
		}
		t.Fatalf("%v: %s", err, b)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := parser{t: t, root: root, pending: map[string]string{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 1<<20), 64<<20)
	for lines.Scan() {
		p.line(lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return p.ops
}

// parser reads what strace writes.
type parser struct {
	t       *testing.T
	root    string
	pending map[string]string // calls that have not returned, by thread
	ops     []fileOp
}

var (
	resumed = regexp.MustCompile(`^<\.\.\. \w+ resumed>`)
	call    = regexp.MustCompile(`^(\w+)\((.*)\) += (-?\d+)`)
	quoted  = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"`)
	opened  = regexp.MustCompile(`<([^>]*)>`)
	numbers = regexp.MustCompile(`, (\d+)`)
)

func (p *parser) line(s string) {
	thread, s, _ := strings.Cut(s, " ")
	s = strings.TrimLeft(s, " ")
	if start, ok := strings.CutSuffix(s, " <unfinished ...>"); ok {
		p.pending[thread] = start
		return
	}
	if rest := resumed.FindString(s); rest != "" {
		s = p.pending[thread] + s[len(rest):]
	}
	m := call.FindStringSubmatch(s)
	if m == nil || m[3][0] == '-' {
		return // a signal, an end, or a call that did nothing
	}
	p.call(m[1], m[2], m[3])
}

// unhex decodes the strings of -xx.
func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
	if err != nil {
		return []byte(s) // plain
	}
	return b
}

func (p *parser) call(name, args, result string) {
	var dirs, strs []string
	for _, m := range opened.FindAllStringSubmatch(quoted.ReplaceAllString(args, ""), -1) {
		dirs = append(dirs, string(unhex(m[1])))
	}
	raw := quoted.FindAllStringSubmatch(args, -1)
	for _, m := range raw {
		if len(m[1]) < 4*4096 {
			strs = append(strs, string(unhex(m[1])))
		}
	}
	path := func(i int) string {
		if filepath.IsAbs(strs[i]) || len(dirs) == 0 {
			return strs[i]
		}
		return filepath.Join(dirs[min(i, len(dirs)-1)], strs[i])
	}
	switch name {
	case "openat":
		if strings.Contains(args, "O_CREAT") {
			p.add(fileOp{call: "create", path: path(0)})
		} else if strings.Contains(args, "O_TRUNC") {
			p.add(fileOp{call: "truncate", path: path(0)})
		}
	case "mkdirat", "mkdir":
		p.add(fileOp{call: "mkdir", path: path(0)})
	case "rename", "renameat", "renameat2":
		p.add(fileOp{call: "rename", path: path(0), to: path(1)})
	case "unlinkat", "unlink", "rmdir":
		p.add(fileOp{call: "remove", path: path(0)})
	case "fsync", "fdatasync":
		p.add(fileOp{call: "sync", path: dirs[0]})
	case "ftruncate":
		n := numbers.FindStringSubmatch(args)
		size, _ := strconv.ParseInt(n[1], 10, 64)
		p.add(fileOp{call: "truncate", path: dirs[0], size: size})
	case "write", "pwrite64":
		op := fileOp{call: "write", path: dirs[0], at: -1, bytes: unhex(raw[0][1])}
		if n := numbers.FindAllStringSubmatch(quoted.ReplaceAllString(args, ""), -1); name == "pwrite64" {
			op.at, _ = strconv.ParseInt(n[len(n)-1][1], 10, 64)
		}
		if done, _ := strconv.Atoi(result); done < len(op.bytes) {
			op.bytes = op.bytes[:done]
		}
		p.add(op)
	default:
		if len(dirs) > 0 && strings.HasPrefix(dirs[0], p.root) {
			p.t.Fatalf("%s(%.200s): not known to the replay", name, args)
		}
	}
}

// add notes an operation if it is on the store.
func (p *parser) add(op fileOp) {
	for _, s := range []*string{&op.path, &op.to} {
		if *s == "" {
			continue
		}
		rel, err := filepath.Rel(p.root, *s)
		if err != nil || strings.HasPrefix(rel, "..") {
			return
		}
		*s = rel
	}
	p.ops = append(p.ops, op)
}
