package httpapi

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"thaw/api"
)

var update = flag.Bool("update", false, "rewrite api/openapi.json")

func TestDocumentIsTheCommittedOne(t *testing.T) {
	got, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("../../api/openapi.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(api.Document), string(got)); d != "" {
		t.Errorf("api/openapi.json is out of date (go test ./broker/httpapi -update):\n%s", d)
	}
}
