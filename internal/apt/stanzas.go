package apt

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// maxField bounds one line of a deb822 file in bytes. The longest in Debian's
// package lists are dependency lists of some tens of kilobytes.
const maxField = 1 << 20

// ReadStanzas calls visit for each stanza of a control file (deb822(5)), with
// field names in lower case. Only wanted fields are kept, the first line of each.
// An error of visit ends it and is returned as it is.
func ReadStanzas(r io.Reader, wanted []string, visit func(map[string]string) error) error {
	keep := make(map[string]bool, len(wanted))
	for _, w := range wanted {
		keep[w] = true
	}
	stanza := map[string]string{}
	flush := func() error {
		if len(stanza) == 0 {
			return nil
		}
		err := visit(stanza)
		stanza = map[string]string{}
		return err
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxField)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.TrimSpace(line) == "":
			if err := flush(); err != nil {
				return err
			}
		case line[0] == ' ' || line[0] == '\t' || line[0] == '#':
			// Continuation or comment: nothing that is read here has one.
		default:
			name, value, ok := strings.Cut(line, ":")
			if name = strings.ToLower(name); ok && keep[name] {
				stanza[name] = strings.TrimSpace(value)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("apt: read control file: %w", err)
	}
	return flush()
}
