package format

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Bounds of CBOR decoding. A section's size is bounded already; these bound the
// memory that a small hostile section can ask for. The longest arrays are the
// block indexes of disks that were written in many pieces.
const (
	maxNesting  = 16
	maxElements = 1 << 20
	maxPairs    = 1024
)

var (
	encMode = mustEnc()
	decMode = mustDec()
)

// mustEnc builds the encoder: Core Deterministic (RFC 8949 §4.2.1), so that equal
// states give equal bytes.
func mustEnc() cbor.EncMode {
	m, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic("format: encoder options: " + err.Error()) // constants only: a programming error
	}
	return m
}

// mustDec builds the decoder. Unlike a message of a protocol, a state with a field
// that this program does not know is refused: leaving part of a machine out would
// run another machine. A newer minor version says that there are such fields.
func mustDec() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		MaxNestedLevels:   maxNesting,
		MaxArrayElements:  maxElements,
		MaxMapPairs:       maxPairs,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
	}.DecMode()
	if err != nil {
		panic("format: decoder options: " + err.Error()) // constants only: a programming error
	}
	return m
}

// Marshal returns v in deterministic CBOR.
func Marshal(v any) ([]byte, error) {
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("format: encode %T: %w", v, err)
	}
	return b, nil
}

// Unmarshal reads one CBOR value into v, and nothing after it. What the fields
// mean is for the component to check. Every error wraps ErrFormat.
func Unmarshal(b []byte, v any) error {
	if err := decMode.Unmarshal(b, v); err != nil {
		return fmt.Errorf("format: decode %T: %w: %w", v, ErrFormat, err)
	}
	return nil
}
