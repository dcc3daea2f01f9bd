// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Policies of kubelet's CPU and memory managers that the agent distinguishes.
const (
	CPUPolicyNone      = "none"
	CPUPolicyStatic    = "static"
	MemoryPolicyNone   = "None"
	MemoryPolicyStatic = "Static"
)

// maxOptions is the limit of the NodeGPUTopology's schema for policy options; kubelet has fewer than ten
// of each kind.
const maxOptions = 16

// settings is the part of a KubeletConfiguration that the agent needs. It is a separate type so that the
// /configz of a newer kubelet can be read even if an unrelated field has changed its type.
type settings struct {
	TopologyManagerPolicy        string            `json:"topologyManagerPolicy"`
	TopologyManagerScope         string            `json:"topologyManagerScope"`
	TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions"`
	CPUManagerPolicy             string            `json:"cpuManagerPolicy"`
	CPUManagerPolicyOptions      map[string]string `json:"cpuManagerPolicyOptions"`
	MemoryManagerPolicy          string            `json:"memoryManagerPolicy"`
	ReservedSystemCPUs           string            `json:"reservedSystemCPUs"`
	KubeReserved                 map[string]string `json:"kubeReserved"`
	SystemReserved               map[string]string `json:"systemReserved"`
}

// parseConfigz parses kubelet's response to /configz. It ignores unknown fields: the running kubelet has
// accepted them, so they belong to a newer version and are not spelling mistakes.
func parseConfigz(data []byte) (*settings, error) {
	var answer struct {
		Kubelet *settings `json:"kubeletconfig"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &answer); err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}
	if answer.Kubelet == nil {
		return nil, errors.New("configz: no kubeletconfig in the answer")
	}
	return answer.Kubelet, nil
}

// parseFile parses a KubeletConfiguration file. Unknown fields are errors. Kubelet ignores unknown fields
// with a warning, and the agent cannot tell whether kubelet knows a field that the agent does not: the
// settings read might differ from those in force.
func parseFile(data []byte) (*settings, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	var c kubeletconfig.KubeletConfiguration
	strict, err := kjson.UnmarshalStrict(asJSON, &c)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	if c.Kind != "KubeletConfiguration" || c.APIVersion != kubeletconfig.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("kubelet configuration: is a %q of %q, want a KubeletConfiguration of %q",
			c.Kind, c.APIVersion, kubeletconfig.SchemeGroupVersion)
	}
	return &settings{
		TopologyManagerPolicy: c.TopologyManagerPolicy, TopologyManagerScope: c.TopologyManagerScope,
		TopologyManagerPolicyOptions: c.TopologyManagerPolicyOptions,
		CPUManagerPolicy:             c.CPUManagerPolicy, CPUManagerPolicyOptions: c.CPUManagerPolicyOptions,
		MemoryManagerPolicy: c.MemoryManagerPolicy, ReservedSystemCPUs: c.ReservedSystemCPUs,
		KubeReserved: c.KubeReserved, SystemReserved: c.SystemReserved,
	}, nil
}

// kubelet converts the settings and applies kubelet's defaults. A value that does not fit the
// NodeGPUTopology's schema is an error: the API server would reject the whole status because of it. If
// only options are too long, they are left out and both a value and an error are returned: kubelet has no
// options that long.
func (s *settings) kubelet() (*v1alpha1.Kubelet, error) {
	k := &v1alpha1.Kubelet{}
	var topologyErr, cpuErr error
	k.TopologyManagerOptions, topologyErr = options("topologyManagerPolicyOptions", s.TopologyManagerPolicyOptions)
	k.CPUManagerOptions, cpuErr = options("cpuManagerPolicyOptions", s.CPUManagerPolicyOptions)
	for _, f := range []struct {
		name, value string
		to          *string
		allowed     []string // the first is the default
	}{
		{"topologyManagerPolicy", s.TopologyManagerPolicy, &k.TopologyManagerPolicy, []string{"none", "best-effort", "restricted", "single-numa-node"}},
		{"topologyManagerScope", s.TopologyManagerScope, &k.Scope, []string{"container", "pod"}},
		{"cpuManagerPolicy", s.CPUManagerPolicy, &k.CPUManagerPolicy, []string{CPUPolicyNone, CPUPolicyStatic}},
		{"memoryManagerPolicy", s.MemoryManagerPolicy, &k.MemoryManagerPolicy, []string{MemoryPolicyNone, MemoryPolicyStatic}},
	} {
		v, err := oneOf(f.value, f.allowed)
		if err != nil {
			return nil, fmt.Errorf("kubelet configuration: %s: %w", f.name, err)
		}
		*f.to = v
	}
	if len(k.TopologyManagerOptions) > maxOptions || len(k.CPUManagerOptions) > maxOptions {
		return nil, fmt.Errorf("kubelet configuration: more than %d policy options", maxOptions)
	}
	reserved, err := nvtopo.ParseCPUList(s.ReservedSystemCPUs)
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration: reservedSystemCPUs: %w", err)
	}
	k.ReservedCPUs = reserved.String()
	return k, errors.Join(topologyErr, cpuErr)
}

// reservedCount returns the number of CPUs that the static CPU manager reserves when only amounts are
// configured: kubelet rounds the sum up.
func (s *settings) reservedCount() (int, error) {
	var sum resource.Quantity
	for _, from := range []map[string]string{s.KubeReserved, s.SystemReserved} {
		text, ok := from["cpu"]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return 0, fmt.Errorf("kubelet configuration: reserved cpu %q: %w", text, err)
		}
		sum.Add(q)
	}
	return int(math.Ceil(float64(sum.MilliValue()) / 1000)), nil
}

func oneOf(value string, allowed []string) (string, error) {
	if value == "" {
		return allowed[0], nil
	}
	if slices.Contains(allowed, value) {
		return value, nil
	}
	return "", fmt.Errorf("%q is not one of %q", value, allowed)
}

// options returns the options that fit the NodeGPUTopology's schema, and an error if any do not.
func options(field string, m map[string]string) (map[string]string, error) {
	fit := maps.Clone(m)
	maps.DeleteFunc(fit, func(name, value string) bool { return max(len(name), len(value)) > v1alpha1.MaxOption })
	var err error
	if out := len(m) - len(fit); out > 0 {
		err = fmt.Errorf("kubelet configuration: %s: %d options of more than %d characters are not published", field, out, v1alpha1.MaxOption)
	}
	if len(fit) == 0 {
		return nil, err
	}
	return fit, err
}
