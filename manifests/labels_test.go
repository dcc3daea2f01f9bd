// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/nvtopo/nvtopo/internal/release"
)

// TestPartOf: every object that is installed has the label by which `nvtopo uninstall` knows it.
// Definitions are known by their API groups.
func TestPartOf(t *testing.T) {
	for _, folder := range []string{"overlays/pools", "overlays/default-scheduler", "ui", "alerts", "pools/alerts"} {
		t.Run(folder, func(t *testing.T) {
			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range built.Resources() {
				if r.GetKind() != "CustomResourceDefinition" && r.GetLabels()[release.PartOfLabel] != release.PartOf {
					t.Errorf("%s %s has no label %s=%s", r.GetKind(), r.GetName(), release.PartOfLabel, release.PartOf)
				}
			}
		})
	}
}
