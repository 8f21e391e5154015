package vmmproto

import (
	"encoding/binary"
	"errors"
	"slices"
)

// coder writes the fields of a message, or reads them: one list of fields serves both, so they cannot differ. After an error it
// does nothing.
//
// A number is a varint (encoding/binary) of as few bytes as it takes, one that may be negative in zigzag; a truth is the number
// 0 or 1; text, bytes and lists begin with their length. So a message has one encoding.
type coder struct {
	reads bool
	b     []byte // what was written, or is still to be read
	err   error
}

var (
	errShort   = errors.New("message ends too early")
	errLong    = errors.New("more after the message")
	errNumber  = errors.New("number is out of range or longer than it need be")
	errTwice   = errors.New("name twice, or names out of order")
	errNotBool = errors.New("truth that is neither 0 nor 1")
	errMany    = errors.New("list is longer than it may be")
)

func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// uint64 codes a number.
func (c *coder) uint64(v *uint64) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	if c.err != nil {
		return
	}
	n, size := binary.Uvarint(c.b)
	switch {
	case size == 0:
		c.fail(errShort)
	case size < 0, size > 1 && c.b[size-1] == 0:
		c.fail(errNumber)
	default:
		*v, c.b = n, c.b[size:]
	}
}

// narrow codes a number of a smaller type.
func narrow[T uint8 | uint32](c *coder, v *T) {
	wide := uint64(*v)
	c.uint64(&wide)
	if uint64(T(wide)) != wide {
		c.fail(errNumber)
		return
	}
	*v = T(wide)
}

func (c *coder) int64(v *int64) {
	zigzag := uint64(*v)<<1 ^ uint64(*v>>63)
	c.uint64(&zigzag)
	*v = int64(zigzag>>1) ^ -int64(zigzag&1)
}

func (c *coder) int(v *int) {
	wide := int64(*v)
	c.int64(&wide)
	*v = int(wide)
}

func (c *coder) bool(v *bool) {
	var n uint64
	if *v {
		n = 1
	}
	c.uint64(&n)
	if n > 1 {
		c.fail(errNotBool)
		return
	}
	*v = n == 1
}

// length codes how many things follow, each of at least one byte.
func (c *coder) length(n int) int {
	wide := uint64(n)
	c.uint64(&wide)
	if c.reads && wide > uint64(len(c.b)) {
		c.fail(errShort)
	}
	if c.err != nil {
		return 0
	}
	return int(wide)
}

// bytes codes bytes; none are read as nil.
func (c *coder) bytes(v *[]byte) {
	n := c.length(len(*v))
	switch {
	case !c.reads:
		c.b = append(c.b, *v...)
	case n > 0:
		*v, c.b = slices.Clone(c.b[:n]), c.b[n:]
	}
}

func (c *coder) text(v *string) {
	n := c.length(len(*v))
	if !c.reads {
		c.b = append(c.b, *v...)
		return
	}
	*v, c.b = string(c.b[:n]), c.b[n:]
}

// list codes a list of at most that many; an empty one is read as nil. A thing takes more room in memory than the byte that it
// may come as, so the bound is looked at before there is any.
func list[T any](c *coder, v *[]T, most int, each func(*coder, *T)) {
	n := c.length(len(*v))
	if n > most {
		c.fail(errMany)
		return
	}
	if c.reads && n > 0 {
		*v = make([]T, n)
	}
	for i := range n {
		if each(c, &(*v)[i]); c.err != nil {
			return
		}
	}
}

// optional codes what may be missing.
func optional[T any](c *coder, v **T, each func(*coder, *T)) {
	has := *v != nil
	if c.bool(&has); !has || c.err != nil {
		return
	}
	if c.reads {
		*v = new(T)
	}
	each(c, *v)
}

// values codes at most that many numbers by name, in the order of the names.
func (c *coder) values(v *map[string]uint64, most int) {
	n := c.length(len(*v))
	if n > most {
		c.fail(errMany)
		return
	}
	if !c.reads {
		names := make([]string, 0, n)
		for name := range *v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			number := (*v)[name]
			c.text(&name)
			c.uint64(&number)
		}
		return
	}
	*v = map[string]uint64{}
	last := ""
	for i := range n {
		var name string
		var number uint64
		c.text(&name)
		if c.uint64(&number); c.err != nil {
			return
		}
		if i > 0 && name <= last {
			c.fail(errTwice)
			return
		}
		(*v)[name], last = number, name
	}
}
