// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// everyMachine runs a test for each machine of the catalogue.
func everyMachine(t *testing.T, test func(t *testing.T, g *nvtopo.Graph)) {
	t.Helper()
	for _, name := range machine.Names() {
		t.Run(name, func(t *testing.T) { test(t, graphOf(t, name)) })
	}
}

func graphOf(t *testing.T, name string) *nvtopo.Graph {
	t.Helper()
	m, err := machine.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}
