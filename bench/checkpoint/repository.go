package checkpoint

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"thaw/api"
	"thaw/client"
)

// repository is what a trajectory works on.
//
//go:embed all:repository
var repository embed.FS

// repositoryTests is how many tests it has before the first step.
const repositoryTests = 5

// How a step runs the tests.
const (
	RunExec = "exec" // as a program of its own: python3 -m unittest
	RunCell = "cell" // in the context that the edits are made in
)

// placeRepository returns the cell that writes the repository into the workspace, and
// defines what steps use.
func placeRepository() (string, error) {
	var b strings.Builder
	b.WriteString("import pathlib\nroot = pathlib.Path('/workspace/repository')\nfiles = {\n")
	err := fs.WalkDir(repository, "repository", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := repository.ReadFile(path)
		fmt.Fprintf(&b, "    %q: %q,\n", strings.TrimPrefix(path, "repository/"), text)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("checkpoint: read repository: %w", err)
	}
	b.WriteString(`}
for name, text in files.items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
def edit(node):
    with open(root / 'calc/shapes.py', 'a') as f:
        f.write(f'\n\ndef prism{node}(base, height):\n    return polygon(base) * height * {node}\n')
    (root / f'tests/test_prism{node}.py').write_text(f'''import unittest
from calc import shapes


class Prism(unittest.TestCase):
    def test_prism(self):
        self.assertEqual(shapes.prism{node}([(0, 0), (2, 0), (2, 2), (0, 2)], 3), {12 * node})
''')
def test():
    import importlib, sys, unittest
    importlib.invalidate_caches()
    sys.dont_write_bytecode = True
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    for name in [n for n in sys.modules if n.split('.')[0] in ('calc', 'tests')]:
        del sys.modules[name]
    unittest.main(module=None, argv=['unittest', 'discover', '-s', str(root / 'tests'), '-t', str(root)], exit=False)
print('ok')
`)
	return b.String(), nil
}

var ranTests = regexp.MustCompile(`(?m)^Ran (\d+) tests? in `)

// step makes the edit of a node and runs all tests, of which there must be so many.
func (r *rig) step(ctx context.Context, s api.Sandbox, run string, node, tests int) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if _, err := r.cell(ctx, s, fmt.Sprintf("edit(%d)", node)); err != nil {
		return err
	}
	var out bytes.Buffer
	w := client.Watcher{Stderr: func(b []byte) error { out.Write(b); return nil }}
	var result api.RunResult
	var err error
	if run == RunCell {
		result, err = r.client.RunCode(ctx, s.ID, api.CodeRequest{Source: "test()"}, w)
	} else {
		result, err = r.client.RunExec(ctx, s.ID, api.ExecRequest{
			Argv: []string{"/usr/bin/python3", "-B", "-m", "unittest", "discover", "-s", "repository/tests", "-t", "repository"},
		}, w)
	}
	switch {
	case err != nil:
		return err
	case result.Error != nil:
		return result.Error
	}
	return checkTests(out.String(), tests)
}

// checkTests looks at what unittest wrote: all of so many tests must have passed. That
// their number is right says that the files are those of the node.
func checkTests(output string, want int) error {
	m := ranTests.FindStringSubmatch(output)
	if m == nil {
		return fmt.Errorf("checkpoint: no tests ran: %.400q", output)
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n != want || !strings.HasSuffix(strings.TrimSpace(output), "OK") {
		return fmt.Errorf("checkpoint: %s tests ran, not %d, or not all passed: %.400q", m[1], want, output)
	}
	return nil
}
