package store

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// idLength is how many hex digits an id has: 128 random bits, so that an id is not
// guessed. It is a handle all the same, never permission.
const idLength = 32

func newID() string {
	var b [idLength / 2]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func validID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "0123456789abcdef") == ""
}
