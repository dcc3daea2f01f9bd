// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// FS holds every manifest under its path in this folder.
//
//go:embed all:crd
var FS embed.FS

// CRDs returns the custom resource definitions of the project.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	const path = "crd/topology.nvtopo.dev_nodegputopologies.yaml"
	data, err := FS.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return nil, fmt.Errorf("decode %s: %w", path, err)
	}
	return []*apiextensionsv1.CustomResourceDefinition{crd}, nil
}
