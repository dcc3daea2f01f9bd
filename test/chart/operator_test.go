// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// operatorKinds are the definitions of the Prometheus operator's kinds that we use.
var operatorKinds = []string{"prometheusrules", "servicemonitors"}

// installOperatorKinds makes the server serve these kinds, as the Prometheus operator's release in
// tools/prometheus-operator defines them.
func (s *server) installOperatorKinds(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator")
	cmd.Dir = filepath.Join(testkit.Repository(), "tools", "prometheus-operator")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("download the Prometheus operator's definitions: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	for _, kind := range operatorKinds {
		text, err := os.ReadFile(filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+kind+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range decode(t, text) {
			if err := s.apply(t, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	for k, o := range kustomize(t, "alerts") {
		gvk := o.GroupVersionKind()
		testkit.Eventually(t, patience, "the kind of "+k+" is served", func(context.Context) (bool, string) {
			s.mapper.Reset()
			_, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			return err == nil, fmt.Sprint(err)
		})
	}
}
