package jail

// Request is one ioctl that the filter lets through.
type Request struct {
	Name   string
	Number uint32
}

// Requests are all ioctls that thaw-vmm may make, on any descriptor: those that internal/kvm makes for package vmm,
// and no others. KVM_RUN is first because the kernel evaluates the filter in this order and it is the one that is
// called thousands of times a second. No request of other drivers is here: the tap is set up by the daemon.
var Requests = []Request{
	{"KVM_RUN", 0xae80},

	// /dev/kvm itself.
	{"KVM_GET_API_VERSION", 0xae00},
	{"KVM_CREATE_VM", 0xae01},
	{"KVM_CHECK_EXTENSION", 0xae03},
	{"KVM_GET_VCPU_MMAP_SIZE", 0xae04},
	{"KVM_GET_SUPPORTED_CPUID", 0xc008ae05},

	// The machine.
	{"KVM_CREATE_VCPU", 0xae41},
	{"KVM_SET_USER_MEMORY_REGION", 0x4020ae46},
	{"KVM_SET_TSS_ADDR", 0xae47},
	{"KVM_SET_IDENTITY_MAP_ADDR", 0x4008ae48},

	// Interrupt controllers, doorbells.
	{"KVM_IRQFD", 0x4020ae76},
	{"KVM_IOEVENTFD", 0x4040ae79},
	{"KVM_CREATE_IRQCHIP", 0xae60},

	// State of a vCPU.
	{"KVM_SET_REGS", 0x4090ae82},
	{"KVM_GET_SREGS", 0x8138ae83},
	{"KVM_SET_SREGS", 0x4138ae84},
	{"KVM_SET_CPUID2", 0x4008ae90},
}
