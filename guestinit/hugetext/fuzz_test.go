package hugetext

import "testing"

// A process names the files that it maps, and maps as much as it likes.
func FuzzMaps(f *testing.F) {
	f.Add(pythonMaps, false)
	f.Add(agentMaps, true)
	f.Add("00200000-7fffffe00000 r--p 00000000 00:01 9 /memfd:all of it (deleted)\n", false)
	f.Fuzz(func(t *testing.T, text string, join bool) {
		maps, err := parse(text)
		if err != nil {
			return
		}
		all := blocks(maps, join)
		if len(all) > maxBlocks {
			t.Fatalf("%d blocks", len(all))
		}
		for _, b := range all {
			if b.at%hugeSize != 0 || b.offset%hugeSize != 0 {
				t.Errorf("block %+v", b)
			}
		}
	})
}
