// Package serial is a 16550A UART whose other end is a log of bounded size:
// the guest's console. It takes no input.
//
// Registers as in the PC16550D data sheet (National Semiconductor, 1995),
// table II.
package serial

import (
	"sync"
)

// Port is where a PC has its first serial port; Ports is how many it takes.
const (
	Port  = 0x3f8
	Ports = 8
)

const (
	regData        = 0 // RBR, THR; divisor low with DLAB
	regIER         = 1 // divisor high with DLAB
	regIIR         = 2 // FCR when written
	regLCR         = 3
	regMCR         = 4
	regLSR         = 5
	regMSR         = 6
	regSCR         = 7
	ierTHREmpty    = 1 << 1
	ierMask        = 0x0f
	iirNone        = 0x01
	iirTHREmpty    = 0x02
	iirFIFO        = 0xc0
	fcrEnable      = 1 << 0
	lcrDLAB        = 1 << 7
	lsrIdle        = 1<<6 | 1<<5 // transmitter and holding register empty
	msrReady       = 1<<7 | 1<<5 | 1<<4
	mcrMask        = 0x1f
	mcrOut2        = 1 << 3 // gates the interrupt on a PC
	defaultDivisor = 12     // 9600 baud
)

// UART is the device. Methods may be called by every vCPU at the same time.
type UART struct {
	log   *Log
	raise func() error

	mu    sync.Mutex
	state State // protected by mu
}

// State is the UART's registers. It comes from a snapshot file; every value
// is valid.
type State struct {
	IER       uint8 `cbor:"ier"`
	LCR       uint8 `cbor:"lcr"`
	MCR       uint8 `cbor:"mcr"`
	SCR       uint8 `cbor:"scr"`
	FIFO      bool  `cbor:"fifo"`
	DivLow    uint8 `cbor:"div_low"`
	DivHigh   uint8 `cbor:"div_high"`
	THRSignal bool  `cbor:"thr_signal"` // an interrupt for "transmitter empty" is pending
}

// New returns a UART that writes to log and raises its interrupt with raise.
func New(log *Log, raise func() error) *UART {
	return &UART{log: log, raise: raise, state: State{DivLow: defaultDivisor}}
}

// State saves the registers.
func (u *UART) State() State {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// Restore returns a UART with saved registers.
func Restore(log *Log, raise func() error, s State) *UART {
	u := New(log, raise)
	u.state = s
	u.state.IER &= ierMask
	u.state.MCR &= mcrMask
	return u
}

// Read returns the register at offset, 0 to 7.
func (u *UART) Read(offset uint16) byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &u.state
	switch offset {
	case regData:
		if s.LCR&lcrDLAB != 0 {
			return s.DivLow
		}
		return 0 // nothing is ever received
	case regIER:
		if s.LCR&lcrDLAB != 0 {
			return s.DivHigh
		}
		return s.IER
	case regIIR:
		id := byte(iirNone)
		if s.THRSignal && s.IER&ierTHREmpty != 0 {
			id = iirTHREmpty
			s.THRSignal = false // reading it acknowledges
		}
		if s.FIFO {
			id |= iirFIFO
		}
		return id
	case regLCR:
		return s.LCR
	case regMCR:
		return s.MCR
	case regLSR:
		return lsrIdle
	case regMSR:
		return msrReady
	default:
		return s.SCR
	}
}

// Write sets the register at offset, 0 to 7.
func (u *UART) Write(offset uint16, v byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &u.state
	switch offset {
	case regData:
		if s.LCR&lcrDLAB != 0 {
			s.DivLow = v
			return
		}
		u.log.WriteByte(v)
		u.empty()
	case regIER:
		if s.LCR&lcrDLAB != 0 {
			s.DivHigh = v
			return
		}
		had := s.IER
		s.IER = v & ierMask
		if s.IER&ierTHREmpty != 0 && had&ierTHREmpty == 0 {
			u.empty() // the holding register is empty already
		}
	case regIIR:
		s.FIFO = v&fcrEnable != 0
	case regLCR:
		s.LCR = v
	case regMCR:
		s.MCR = v & mcrMask
	case regSCR:
		s.SCR = v
	}
}

// empty signals that the holding register can take more: it always can.
// Preconditions: mu is held.
func (u *UART) empty() {
	s := &u.state
	s.THRSignal = true
	if s.IER&ierTHREmpty != 0 && s.MCR&mcrOut2 != 0 {
		// A lost edge would only delay the guest's output: it polls too.
		_ = u.raise()
	}
}
