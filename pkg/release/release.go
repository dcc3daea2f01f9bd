// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/component-base/version"
)

// Namespace is where a release is installed, unless the manifests are changed: the programs'
// accounts and Leases are in it.
const Namespace = "nvtopo-system"

// PartOfLabel with the value PartOf is on every object that the manifests and the chart install,
// but for the definitions of the project's kinds, which are known by their API groups.
const (
	PartOfLabel = "app.kubernetes.io/part-of"
	PartOf      = "nvtopo"
)

// Labels returns PartOfLabel with its value.
func Labels() map[string]string { return map[string]string{PartOfLabel: PartOf} }

// Level of this release. Releases before levels were written are level 1.
const Level = 2

// unmarkedLevel is the level of what bears none.
const unmarkedLevel = 1

// Annotations with which the programs of a node mark their Leases.
const (
	VersionKey = "nvtopo.dev/version" // for people
	LevelKey   = "nvtopo.dev/level"
)

// project separates the Kubernetes version from ours in what the build sets.
const project = "+nvtopo."

// Version is the release's name, for people; "unknown" in a build that was told none.
func Version() string { return nameIn(version.Get().GitVersion) }

// Kubernetes is the version of Kubernetes that the program is built from; empty in
// a build that was told none.
func Kubernetes() string {
	k, _, ok := strings.Cut(version.Get().GitVersion, project)
	if !ok {
		return ""
	}
	return k
}

func nameIn(gitVersion string) string {
	if _, name, ok := strings.Cut(gitVersion, project); ok && name != "" {
		return name
	}
	return "unknown"
}

// Marks are the annotations of something that this release writes.
func Marks() map[string]string {
	return map[string]string{VersionKey: Version(), LevelKey: strconv.Itoa(Level)}
}

// Mark is a release as it has marked something.
type Mark struct {
	Version string
	Level   int
}

// MarkOf reads annotations. What bears no level is of level 1; a level that is no
// number is 0, which is apart from all others.
func MarkOf(annotations map[string]string) Mark {
	m := Mark{Version: annotations[VersionKey], Level: unmarkedLevel}
	if m.Version == "" {
		m.Version = "unknown"
	}
	if text, ok := annotations[LevelKey]; ok {
		var err error
		if m.Level, err = strconv.Atoi(text); err != nil || m.Level < 1 {
			m.Level = 0
		}
	}
	return m
}

// String names the release.
func (m Mark) String() string { return fmt.Sprintf("%s (level %d)", m.Version, m.Level) }

// Supported reports whether this program works together with one of m.
func (m Mark) Supported() bool { return m.Level >= Level-1 && m.Level <= Level+1 }
