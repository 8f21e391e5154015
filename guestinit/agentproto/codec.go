package agentproto

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Bounds of CBOR decoding. A message is one frame, so its size is bounded
// already; these bound the memory that a small hostile message can ask for.
const (
	maxNesting  = 8
	maxElements = 8192
	maxPairs    = 64
)

var (
	encMode = mustEnc()
	decMode = mustDec()
)

// mustEnc builds the encoder: Core Deterministic (RFC 8949 §4.2.1), and every
// Go string as a byte string, since arguments and file names on Unix are
// bytes and need not be UTF-8.
func mustEnc() cbor.EncMode {
	o := cbor.CoreDetEncOptions()
	o.String = cbor.StringToByteString
	m, err := o.EncMode()
	if err != nil {
		panic("agentproto: encoder options: " + err.Error()) // constants only: a programming error
	}
	return m
}

func mustDec() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey:          cbor.DupMapKeyEnforcedAPF,
		IndefLength:        cbor.IndefLengthForbidden,
		TagsMd:             cbor.TagsForbidden,
		MaxNestedLevels:    maxNesting,
		MaxArrayElements:   maxElements,
		MaxMapPairs:        maxPairs,
		ByteStringToString: cbor.ByteStringToStringAllowed,
	}.DecMode()
	if err != nil {
		panic("agentproto: decoder options: " + err.Error()) // constants only: a programming error
	}
	return m
}

// validator is what a message can check about itself.
type validator interface{ Validate() error }

// Decode reads one CBOR message into v and validates it if it has a Validate
// method. Fields that v does not know are skipped, so that a newer peer may
// add some. Every error wraps ErrProtocol.
func Decode(payload []byte, v any) error {
	if err := decMode.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("agentproto: decode %T: %w: %w", v, ErrProtocol, err)
	}
	if c, ok := v.(validator); ok {
		if err := c.Validate(); err != nil {
			return fmt.Errorf("agentproto: decode %T: %w: %w", v, ErrProtocol, err)
		}
	}
	return nil
}

// Encode returns v in CBOR.
func Encode(v any) ([]byte, error) {
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("agentproto: encode %T: %w", v, err)
	}
	return b, nil
}
