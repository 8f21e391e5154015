package vmm

// The order of a save and of a restore. Each step has the reason why it stands
// where it stands; nothing else in this package decides an order.
//
// Save:
//
//  1. Processors stop, and leave KVM_RUN once more with immediate_exit set when
//     they were in the middle of an exit: KVM completes a pending port or MMIO
//     access only on the next entry (api.rst section 5, note under
//     KVM_EXIT_MMIO), and until then the registers are from before it.
//  2. Devices drain: what they took from a ring is answered, in memory. Their
//     interrupts are on the way by then, as events of irqfd.
//  3. Each processor: its MP state first, because KVM_GET_MP_STATE makes KVM
//     take INIT and start-up IPIs that have arrived (kvm_apic_accept_events),
//     which changes registers; its events last, because reading other state
//     can turn a pending exception into a delivered one. Its TSC is read with
//     the other MSRs, in one call with the deadline of its timer, which
//     counts from it.
//  4. Interrupt controllers, after the processors' local APICs and after the
//     devices: an edge that irqfd raised meanwhile is in one of both. Then the
//     clock, as late as possible, so that guest time loses little.
//  5. Devices' own state.
//  6. Memory last: every step above may still write to it (answers of devices,
//     the kvmclock page, the wall clock's).
//
// Restore into a new machine, or in place into a paused one:
//
//  1. Memory, before any MSR: setting those of kvmclock, steal time and async
//     page faults makes KVM read and write guest memory.
//  2. CPUID, at creation: XCRs, XSAVE, CR4 and MSRs are checked against it, and it
//     cannot change after the first KVM_RUN.
//  3. Each processor, the first one first:
//     MP state; SREGS, which carry the APIC base (and so the layout of the local
//     APIC's registers), the paging mode and, on pvm hosts, in CR3 the guest's
//     mode; general registers; XCRs before XSAVE, which holds only components
//     that XCR0 enables; debug registers; the local APIC, before MSRs, because
//     the TSC deadline is taken only while the timer is in that mode; MSRs: the
//     TSC before everything that counts from it, FS, GS and KERNEL_GS base and
//     pvm's own register after SREGS, which overwrite FS and GS base, and the
//     TSC deadline last; events last, because most of the above clears or
//     requests events.
//  4. Interrupt controllers, after the local APICs: the I/O APIC delivers what is
//     pending in it at once, and a message to an APIC that has not been set
//     would be lost. Of the PICs the second comes first: what it had pending would
//     else be latched by the first. Then the clock: setting MSRs of kvmclock recomputes it.
//     Then each processor is told of the pause, which works only while
//     kvmclock's page is known.
//  5. Devices: their rings are in memory by now, and their interrupts need the
//     controllers.
//  6. The clock once more, since a shell may have waited, and processors run.
