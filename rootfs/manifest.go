package rootfs

// Source is where packages come from.
type Source string

// Sources of packages. Python comes from SourcePyPI or SourceDebian, Node from
// SourceNPM or SourceDebian.
const (
	SourceDebian Source = "debian"
	SourcePyPI   Source = "pypi"
	SourceNPM    Source = "npm"
)

// Package is one package in an image.
type Package struct {
	Source       Source `json:"source"`
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture,omitempty"` // Debian's
	SHA256       string `json:"sha256,omitempty"`       // of the .deb or wheel
	Integrity    string `json:"integrity,omitempty"`    // npm's: "sha512-BASE64" of the tarball
	License      string `json:"license,omitempty"`      // as the package declares it, SPDX
}

// Lock says how an image stands to the lock it was made by.
type Lock struct {
	// Status is "matched", or "drifted" when Debian had other versions.
	Status string  `json:"status"`
	Drift  []Drift `json:"drift,omitempty"`
}

// Values of Lock.Status.
const (
	LockMatched = "matched"
	LockDrifted = "drifted"
)

// Manifest lies beside an image as manifest.json and says what it was made from.
type Manifest struct {
	Name     string            `json:"name"`
	SHA256   string            `json:"sha256"` // of image.erofs
	Size     int64             `json:"size"`   // of image.erofs, in bytes
	Epoch    int64             `json:"epoch"`  // time of every file, in seconds since 1970
	Lock     Lock              `json:"lock"`
	Inputs   map[string]string `json:"inputs"`   // recipe and lock files → SHA-256
	Sources  map[string]Source `json:"sources"`  // "python", "node" → where from
	Versions map[string]string `json:"versions"` // "debian", "python", "node"
	Tools    map[string]string `json:"tools"`    // what made it
	Env      map[string]string `json:"env"`      // environment that jobs start with
	Packages []Package         `json:"packages"`
}

// guestInfo is /etc/thaw/image.json, by which the guest knows its image.
type guestInfo struct {
	Name     string            `json:"name"`
	Debian   string            `json:"debian"`
	Python   string            `json:"python,omitempty"`
	Node     string            `json:"node,omitempty"`
	User     guestUser         `json:"user"`
	Env      map[string]string `json:"env"`
	Packages map[string]string `json:"packages"` // language packages → version
}

type guestUser struct {
	Name string `json:"name"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Home string `json:"home"`
}

// jobUser is the user that jobs run as.
var jobUser = guestUser{Name: "job", UID: 10001, GID: 10001, Home: "/workspace"}

// guest returns what the guest is told of m.
func (m Manifest) guest() guestInfo {
	g := guestInfo{Name: m.Name, Debian: m.Versions["debian"], Python: m.Versions["python"], Node: m.Versions["node"],
		User: jobUser, Env: m.Env, Packages: map[string]string{}}
	for _, p := range m.Packages {
		if p.Source != SourceDebian {
			g.Packages[p.Name] = p.Version
		}
	}
	return g
}
