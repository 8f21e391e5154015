package manifest

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// IDLength is how many hex digits an id has: 128 random bits, so that an id is not
// guessed. It is a handle all the same, never permission.
const IDLength = 32

// NewID returns an id that no other snapshot has.
func NewID() string {
	var b [IDLength / 2]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ValidID says whether id has the form of one.
func ValidID(id string) bool {
	return len(id) == IDLength && strings.Trim(id, "0123456789abcdef") == ""
}
