// SPDX-License-Identifier: Apache-2.0

package release

import (
	"strings"

	"k8s.io/component-base/version"
)

// Namespace is the default namespace of an installation: the programs' accounts and Leases are in it.
const Namespace = "nvtopo-system"

// Profile is the schedulerName of the shipped configuration.
const Profile = "topology-aware-scheduler"

// PartOfLabel with the value PartOf is on every object that the manifests and the chart install, except
// for the definitions of the project's kinds, which are recognized by their API groups.
const (
	PartOfLabel = "app.kubernetes.io/part-of"
	PartOf      = "nvtopo"
)

// Labels returns PartOfLabel with its value.
func Labels() map[string]string { return map[string]string{PartOfLabel: PartOf} }

// VersionKey is the annotation with the program's version on the Leases of a node's programs, for people.
const VersionKey = "nvtopo.dev/version"

// project separates the Kubernetes version from nvtopo's in the version that the build sets.
const project = "+nvtopo."

// Version returns the release's name, for people; "unknown" in a build without one.
func Version() string { return nameIn(version.Get().GitVersion) }

// Kubernetes returns the version of Kubernetes that the program is built from; empty in a build without
// one.
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

// Marks returns the annotations of objects that this program writes.
func Marks() map[string]string { return map[string]string{VersionKey: Version()} }
