package jail

// Request is one ioctl that the filter lets through.
type Request struct {
	Name   string
	Number uint32
}

// Requests are all ioctls that thaw-vmm may make, on any descriptor: those that internal/kvm, internal/pagemap and
// internal/uffd make for package vmm, and no others. KVM_RUN is first because the kernel evaluates the filter in this order and it is the one that is
// called thousands of times a second. No request of other drivers is here: the tap is set up by the daemon.
var Requests = []Request{
	{"KVM_RUN", 0xae80},

	// /dev/kvm itself.
	{"KVM_GET_API_VERSION", 0xae00},
	{"KVM_CREATE_VM", 0xae01},
	{"KVM_CHECK_EXTENSION", 0xae03},
	{"KVM_GET_VCPU_MMAP_SIZE", 0xae04},
	{"KVM_GET_SUPPORTED_CPUID", 0xc008ae05},
	{"KVM_GET_MSR_INDEX_LIST", 0xc004ae02},

	// The machine.
	{"KVM_CREATE_VCPU", 0xae41},
	{"KVM_SET_USER_MEMORY_REGION", 0x4020ae46},
	{"KVM_SET_TSS_ADDR", 0xae47},
	{"KVM_SET_IDENTITY_MAP_ADDR", 0x4008ae48},

	// Interrupt controllers, doorbells.
	{"KVM_IRQFD", 0x4020ae76},
	{"KVM_IOEVENTFD", 0x4040ae79},
	{"KVM_CREATE_IRQCHIP", 0xae60},

	// State of interrupt controllers and clock: save and restore.
	{"KVM_GET_IRQCHIP", 0xc208ae62},
	{"KVM_SET_IRQCHIP", 0x8208ae63},
	{"KVM_SET_CLOCK", 0x4030ae7b},
	{"KVM_GET_CLOCK", 0x8030ae7c},

	// Pages that the guest has written; counters.
	{"KVM_GET_DIRTY_LOG", 0x4010ae42},
	{"KVM_CLEAR_DIRTY_LOG", 0xc018aec0},
	{"KVM_ENABLE_CAP", 0x4068aea3},
	{"KVM_RESET_DIRTY_RINGS", 0xaec7},
	{"KVM_GET_STATS_FD", 0xaece},

	// State of a vCPU.
	{"KVM_GET_REGS", 0x8090ae81},
	{"KVM_SET_REGS", 0x4090ae82},
	{"KVM_GET_SREGS", 0x8138ae83},
	{"KVM_SET_SREGS", 0x4138ae84},
	{"KVM_GET_MSRS", 0xc008ae88},
	{"KVM_SET_MSRS", 0x4008ae89},
	{"KVM_GET_LAPIC", 0x8400ae8e},
	{"KVM_SET_LAPIC", 0x4400ae8f},
	{"KVM_SET_CPUID2", 0x4008ae90},
	{"KVM_GET_MP_STATE", 0x8004ae98},
	{"KVM_SET_MP_STATE", 0x4004ae99},
	{"KVM_GET_VCPU_EVENTS", 0x8040ae9f},
	{"KVM_SET_VCPU_EVENTS", 0x4040aea0},
	{"KVM_GET_DEBUGREGS", 0x8080aea1},
	{"KVM_SET_DEBUGREGS", 0x4080aea2},
	{"KVM_GET_TSC_KHZ", 0xaea3},
	{"KVM_GET_XSAVE", 0x9000aea4},
	{"KVM_GET_XSAVE2", 0x9000aecf},
	{"KVM_SET_XSAVE", 0x5000aea5},
	{"KVM_GET_XCRS", 0x8188aea6},
	{"KVM_SET_XCRS", 0x4188aea7},
	{"KVM_KVMCLOCK_CTRL", 0xaead},

	// A userfaultfd for the process's own memory. Tracker uffd-wp-async makes one by a device that is passed only for
	// it. A shell has one from before the filter, which puts pages into the guest's memory and is closed before the
	// guest runs. Faults are never read, nor are pages protected by it.
	{"USERFAULTFD_IOC_NEW", 0xaa00},
	{"UFFDIO_API", 0xc018aa3f},
	{"UFFDIO_REGISTER", 0xc020aa00},
	{"UFFDIO_COPY", 0xc028aa03},

	// The process's own page map, which the daemon passes: which pages the guest has made its own.
	{"PAGEMAP_SCAN", 0xc0606610},
}
