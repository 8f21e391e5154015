// Command init-sleeps is a guest init that never becomes ready.
package main

import (
	"os"
	"time"
)

func main() {
	os.Stdout.WriteString("init-sleeps: I will never be ready\n")
	time.Sleep(time.Hour)
}
