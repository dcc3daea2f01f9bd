// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// bill writes the bill of materials of an image as SPDX JSON: the program, each module that it is
// made of and Go's standard library, from the build information in the binary, and the C library, if any.
func bill(p *program, arch string, binary []byte, libc string, o *options) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("read what it was built from: %w", err)
	}
	sum := sha256.Sum256(binary)
	main := pkg(p.name, o.version)
	main.PrimaryPackagePurpose = "APPLICATION"
	main.PackageLicenseDeclared = "Apache-2.0"
	main.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum[:])}}
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: p.name + " " + o.version + " linux/" + arch,
		// Has to be unique; it describes the program of this hash.
		DocumentNamespace: "https://github.com/nvtopo/nvtopo/spdx/" + p.name + "-" + hex.EncodeToString(sum[:]),
		CreationInfo: &spdx.CreationInfo{
			Created: o.at.UTC().Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "nvtopo-tools-images"}},
		},
		Packages:      []*spdx.Package{main},
		Relationships: []*spdx.Relationship{relation("DOCUMENT", "DESCRIBES", string(main.PackageSPDXIdentifier))},
	}
	contains := func(q *spdx.Package) {
		doc.Packages = append(doc.Packages, q)
		doc.Relationships = append(doc.Relationships, relation(string(main.PackageSPDXIdentifier), "CONTAINS", string(q.PackageSPDXIdentifier)))
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	stdlib := located(pkg("stdlib", goVersion), "pkg:golang/stdlib@"+goVersion)
	stdlib.PackageLicenseDeclared = "BSD-3-Clause"
	contains(stdlib)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		contains(located(pkg(m.Path, m.Version), "pkg:golang/"+m.Path+"@"+m.Version))
	}
	if libc != "" {
		q := pkg("glibc", libc)
		q.PackageLicenseDeclared = "LGPL-2.1-or-later"
		contains(q)
	}
	var out bytes.Buffer
	if err := json.Write(doc, &out, json.Indent(" ")); err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	return out.Bytes(), nil
}

// pkg returns a package of which only name and version are known.
func pkg(name, version string) *spdx.Package {
	return &spdx.Package{
		PackageName: name, PackageVersion: version, PackageSPDXIdentifier: common.ElementID(identifier(name, version)),
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION",
		PackageCopyrightText: "NOASSERTION",
	}
}

// located adds the package URL by which others identify a package.
func located(p *spdx.Package, purl string) *spdx.Package {
	p.PackageExternalReferences = []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: purl}}
	return p
}

// identifier has only what SPDX allows in one: letters, digits, dots and hyphens.
func identifier(name, version string) string {
	return "Package-" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.':
			return r
		}
		return '-'
	}, name+"-"+version)
}

func relation(from, kind, to string) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.MakeDocElementID("", from), RefB: common.MakeDocElementID("", to), Relationship: kind,
	}
}
