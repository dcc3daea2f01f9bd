// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const fileHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// TestFileConfig: a file gives the settings that kubelet would run with.
func TestFileConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		file    string
		want    *v1alpha1.Kubelet
		wantErr string
	}{
		"an empty configuration has kubelet's defaults": {
			file: fileHead,
			want: &v1alpha1.Kubelet{TopologyManagerPolicy: "none", Scope: "container", CPUManagerPolicy: "none", MemoryManagerPolicy: "None"},
		},
		"every field is carried over": {
			file: fileHead + `
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
memoryManagerPolicy: Static
reservedSystemCPUs: "3,0,1"
`,
			want: &v1alpha1.Kubelet{
				TopologyManagerPolicy: "single-numa-node", Scope: "pod", CPUManagerPolicy: "static", MemoryManagerPolicy: "Static", ReservedCPUs: "0-1,3",
				TopologyManagerOptions: map[string]string{"prefer-closest-numa-nodes": "true"},
				CPUManagerOptions:      map[string]string{"full-pcpus-only": "true"},
			},
		},
		"a policy the custom resource does not know is refused": {
			file: fileHead + "topologyManagerPolicy: balanced\n", wantErr: `topologyManagerPolicy: "balanced" is not one of`,
		},
		"a reserved list that is no list is refused": {
			file: fileHead + "reservedSystemCPUs: 3-1\n", wantErr: "runs backwards",
		},
		"an unknown field is refused": {
			file: fileHead + "topologyManagerPolcy: none\n", wantErr: `unknown field "topologyManagerPolcy"`,
		},
		"a field given twice is refused": {
			file: fileHead + "cpuManagerPolicy: none\ncpuManagerPolicy: static\n", wantErr: "already set",
		},
		"another kind of object is refused": {
			file: "apiVersion: v1\nkind: ConfigMap\n", wantErr: `is a "ConfigMap"`,
		},
		"options longer than the custom resource takes are left out and told": {
			file: fileHead + "cpuManagerPolicyOptions: {full-pcpus-only: \"true\", " + strings.Repeat("o", 129) + ": \"true\", other: \"" + strings.Repeat("v", 129) + "\"}\n",
			want: &v1alpha1.Kubelet{
				TopologyManagerPolicy: "none", Scope: "container", CPUManagerPolicy: "none", MemoryManagerPolicy: "None",
				CPUManagerOptions: map[string]string{"full-pcpus-only": "true"},
			},
			wantErr: "cpuManagerPolicyOptions: 2 options of more than 128 characters",
		},
		"a file of no object is refused": {file: "", wantErr: `is a ""`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fromFile([]byte(tc.file))
			checkErr(t, err, tc.wantErr)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConfigz: configz is read with unknown fields in it.
func TestConfigz(t *testing.T) {
	c := kubeletconfig.KubeletConfiguration{TopologyManagerPolicy: "restricted", TopologyManagerScope: "pod", CPUManagerPolicy: "static"}
	plain, err := json.Marshal(map[string]any{"kubeletconfig": c})
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(plain), `"topologyManagerPolicy"`, `"somethingNew":{"a":1},"port":"was a number","topologyManagerPolicy"`, 1)
	for name, tc := range map[string]struct {
		answer  string
		want    string
		wantErr string
	}{
		"as this kubelet's types print it":        {answer: string(plain), want: "restricted"},
		"with fields of a newer kubelet":          {answer: newer, want: "restricted"},
		"without a kubelet":                       {answer: `{"other":{}}`, wantErr: "no kubeletconfig"},
		"with a name in another case":             {answer: `{"kubeletconfig":{"TopologyManagerPolicy":"restricted"}}`, want: "none"},
		"with a policy of another type than text": {answer: `{"kubeletconfig":{"topologyManagerPolicy":1}}`, wantErr: "cannot unmarshal"},
		"that is no JSON":                         {answer: "404", wantErr: "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parseConfigz([]byte(tc.answer))
			checkErr(t, err, tc.wantErr)
			if err != nil {
				return
			}
			k, err := s.kubelet()
			if err != nil {
				t.Fatal(err)
			}
			if k.TopologyManagerPolicy != tc.want {
				t.Errorf("topologyManagerPolicy %q, want %q", k.TopologyManagerPolicy, tc.want)
			}
		})
	}
}

// TestReservedRounding: a reserved amount is rounded up.
func TestReservedRounding(t *testing.T) {
	for name, tc := range map[string]struct {
		kube, system map[string]string
		want         int
		wantErr      string
	}{
		"nothing":             {want: 0},
		"a part of a CPU":     {kube: map[string]string{"cpu": "100m"}, want: 1},
		"two parts of one":    {kube: map[string]string{"cpu": "500m"}, system: map[string]string{"cpu": "0.5"}, want: 1},
		"more than one":       {kube: map[string]string{"cpu": "1", "memory": "1Gi"}, system: map[string]string{"cpu": "1m"}, want: 2},
		"an amount of no use": {system: map[string]string{"cpu": "two"}, wantErr: `reserved cpu "two"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (&settings{KubeReserved: tc.kube, SystemReserved: tc.system}).reservedCount()
			checkErr(t, err, tc.wantErr)
			if got != tc.want {
				t.Errorf("%d CPUs, want %d", got, tc.want)
			}
		})
	}
}

// FuzzFile: whatever the file holds, what is published is valid in the custom resource.
func FuzzFile(f *testing.F) {
	f.Add([]byte(fileHead + "topologyManagerPolicy: restricted\nreservedSystemCPUs: 0-3\n"))
	f.Add([]byte(fileHead + "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {a: b}\n"))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := fromFile(data)
		if err != nil {
			return
		}
		if _, err := oneOf(k.TopologyManagerPolicy, []string{"none", "best-effort", "restricted", "single-numa-node"}); err != nil || k.Scope == "" {
			t.Errorf("published %+v of %q", k, data)
		}
	})
}

func fromFile(data []byte) (*v1alpha1.Kubelet, error) {
	s, err := parseFile(data)
	if err != nil {
		return nil, err
	}
	return s.kubelet()
}

// checkErr fails unless err contains want, or is nil when want is empty.
func checkErr(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatalf("error %q, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Fatalf("error %v, want one with %q", err, want)
	}
}
