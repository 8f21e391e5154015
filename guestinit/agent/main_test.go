package agent_test

import (
	"testing"

	"thaw/guestinit/guesttest"
)

func TestMain(m *testing.M) { guesttest.HostMain(m) }
