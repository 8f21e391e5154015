package memimage

// slots says where each page of a delta is: in which place of its file, in none
// because it is all zeros, or not in the delta. It is read in ascending order in
// the middle of a pause, so it is a table by page, in pieces made when needed.
type slots [][]uint32

// Values besides places in the file.
const (
	noSlot   = ^uint32(0)
	zeroSlot = ^uint32(0) - 1
)

// slotChunk is how many pages a piece is for.
const slotChunk = 512

func newSlots(pages uint32) slots { return make(slots, (pages+slotChunk-1)/slotChunk) }

func (s slots) get(page uint32) uint32 {
	if c := s[page/slotChunk]; c != nil {
		// Kept plus one: a new piece is all noSlot.
		return c[page%slotChunk] - 1
	}
	return noSlot
}

func (s slots) set(page, slot uint32) {
	c := &s[page/slotChunk]
	if *c == nil {
		if slot == noSlot {
			return
		}
		*c = make([]uint32, slotChunk)
	}
	(*c)[page%slotChunk] = slot + 1
}

// all calls f for each page that is in the delta, lowest first.
func (s slots) all(f func(page, slot uint32)) {
	for i, c := range s {
		for k, v := range c {
			if v != 0 {
				f(uint32(i*slotChunk+k), v-1)
			}
		}
	}
}
