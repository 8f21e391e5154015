package rootfs

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Types of SPDX 2.3 (ISO/IEC 5962 and its JSON schema), as far as an image's
// bill of materials needs them.
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Relationships     []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string         `json:"SPDXID"`
		Name             string         `json:"name"`
		VersionInfo      string         `json:"versionInfo,omitempty"`
		DownloadLocation string         `json:"downloadLocation"`
		FilesAnalyzed    bool           `json:"filesAnalyzed"`
		LicenseConcluded string         `json:"licenseConcluded"`
		LicenseDeclared  string         `json:"licenseDeclared"`
		CopyrightText    string         `json:"copyrightText"`
		Checksums        []spdxChecksum `json:"checksums,omitempty"`
		ExternalRefs     []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const (
	spdxNoAssertion = "NOASSERTION"
	spdxImageID     = "SPDXRef-image"
)

// sbom returns the bill of materials of m. It is as repeatable as the image: its
// time is the image's, its name space the image's digest.
func sbom(m Manifest) spdxDocument {
	doc := spdxDocument{
		SPDXVersion:       "SPDX-2.3",
		DataLicense:       "CC0-1.0",
		SPDXID:            "SPDXRef-DOCUMENT",
		Name:              "thaw-image-" + m.Name,
		DocumentNamespace: "urn:thaw:image:" + m.Name + ":" + m.SHA256,
		CreationInfo: spdxCreation{
			Created:  time.Unix(m.Epoch, 0).UTC().Format(time.RFC3339),
			Creators: []string{"Tool: thaw-image"},
		},
	}
	image := newSPDXPackage(spdxImageID, "thaw-image-"+m.Name, "")
	image.Checksums = []spdxChecksum{{"SHA256", m.SHA256}}
	doc.Packages = append(doc.Packages, image)
	doc.Relationships = append(doc.Relationships, spdxRelationship{doc.SPDXID, "DESCRIBES", spdxImageID})
	for i, p := range m.Packages {
		// Names may hold characters that an SPDX identifier may not; numbers are
		// as stable as the list.
		id := fmt.Sprintf("SPDXRef-%s-%d", p.Source, i+1)
		doc.Packages = append(doc.Packages, spdxFor(id, p))
		doc.Relationships = append(doc.Relationships, spdxRelationship{spdxImageID, "CONTAINS", id})
	}
	return doc
}

func newSPDXPackage(id, name, version string) spdxPackage {
	return spdxPackage{SPDXID: id, Name: name, VersionInfo: version, DownloadLocation: spdxNoAssertion,
		LicenseConcluded: spdxNoAssertion, LicenseDeclared: spdxNoAssertion, CopyrightText: spdxNoAssertion}
}

func spdxFor(id string, p Package) spdxPackage {
	s := newSPDXPackage(id, p.Name, p.Version)
	s.ExternalRefs = []spdxRef{{"PACKAGE-MANAGER", "purl", purl(p)}}
	if p.SHA256 != "" {
		s.Checksums = append(s.Checksums, spdxChecksum{"SHA256", p.SHA256})
	}
	if sum, err := sriHex(p.Integrity); err == nil {
		s.Checksums = append(s.Checksums, spdxChecksum{"SHA512", sum})
	}
	if p.License != "" {
		s.LicenseDeclared = p.License
	}
	return s
}

// purl returns the package URL of p.
func purl(p Package) string {
	version := url.PathEscape(p.Version)
	switch p.Source {
	case SourcePyPI:
		// The purl type pypi wants names lower case, with "-" for "_".
		return "pkg:pypi/" + strings.ReplaceAll(strings.ToLower(p.Name), "_", "-") + "@" + version
	case SourceNPM:
		return "pkg:npm/" + strings.Replace(p.Name, "@", "%40", 1) + "@" + version
	default:
		return "pkg:deb/debian/" + url.PathEscape(p.Name) + "@" + version + "?arch=" + p.Architecture
	}
}
