// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

type values struct{ good, bad []string }

// inputValues are what users may write and what they may not, by annotation.
var inputValues = map[string]values{
	podrequest.TopologyPolicyKey: {
		good: []string{"none", "best-effort", "restricted", "single-numa", "single-numa-node"},
		bad:  []string{"", "None", "single numa node", "besteffort", "none\n"},
	},
	podrequest.NUMAAffinityKey: {good: []string{"none", "preferred", "required"}, bad: []string{"", "yes", "REQUIRED", "preferred,required"}},
	podrequest.MinLinkKey: {
		good: []string{"NVLINK", "NV", "nv1", "NV12", " NV64\t", "XGMI", "xgmi4", "HCCS1", "PIX", "pxb", "PHB", "NODE", "SYS", "soc"},
		bad:  []string{"", "NV0", "NV65", "NV04", "NV+1", "NV-1", "NVSWITCH", "NVLINK4", "P2P", "PIX PXB", "\u202eNV4", "NV１"},
	},
	podrequest.MinBandwidthKey: {
		good: []string{"1", "0.5", ".5", "5.", " 300 ", "+25", "1e3", "9.5E+2", "1000000", "0x1p4", "0x1_0p0_1", "1_000", "00001", "300GB/s", "2400 Gb/s", "100Gbps", "1TB/s ", "12.5GBps", "800Gbit/s"},
		bad:  []string{"", "0", "0.0", "0e5", "-1", "NaN", "Inf", "300 GB", "100G", "0GB/s", "0.0 Gb/s", "100gb/s", "GB/s", "100GB/h", "1,5", "1e", "one"},
	},
	podrequest.AllowMixedModelsKey: truths,
	podrequest.MovableKey:          truths,
	podrequest.GPUModelKey: {
		good: []string{"H100", "H100,A100", "NVIDIA H100 80GB HBM3", " H100 , A100", "H100_SXM-80GB", strings.Repeat("a,", 15) + "a"},
		bad:  []string{"", ",", "H100,", "H100,,A100", " - _", "H100, ", strings.Repeat("a,", 16) + "a", strings.Repeat("a", 1025)},
	},
	podrequest.MinGPUMemoryKey:      sizes,
	podrequest.MessageSizeKey:       sizes,
	gangrequest.GangKey:             gangNames,
	gangrequest.NearKey:             gangNames,
	gangrequest.GangSizeKey:         numbersOfPods,
	gangrequest.SegmentSizeKey:      numbersOfPods,
	gangrequest.MaxPerDomainKey:     numbersOfPods,
	gangrequest.RequiredKey:         levelNames,
	gangrequest.PreferredKey:        levelNames,
	gangrequest.RequiredSegmentKey:  levelNames,
	gangrequest.PreferredSegmentKey: levelNames,
	gangrequest.SpreadOverKey:       levelNames,
	gangrequest.StrategyKey: {
		good: []string{"communication-heavy", "communication_heavy", "compute-heavy", "compute_heavy", "mixed", "same-switch", "spread", "best-effort"},
		bad:  []string{"", "Mixed", "communication", "besteffort", "mixed\n"},
	},
	gangrequest.PatienceKey: {
		good: []string{"0", "0s", "300s", "5m", "1h30m", "1.5h", ".5s", "+10s", "1us", "1µs", "24h"},
		bad:  []string{"", "300", "-1s", "-0s", "1d", "5 m", "m", "ever", "1,5h"},
	},
	gangrequest.RankOrderKey: {good: []string{"index", "name"}, bad: []string{"", "Index", "size", "index,name"}},
}

var (
	truths = values{good: []string{"true", "false", "1", "0", "T", "F", "True"}, bad: []string{"", "yes", "tRUE", "2", " true"}}
	sizes  = values{
		good: []string{"40Gi", "80000000000", "1.5Ti", "40G", "4e10", "4E+10", "+1", "500m", "1E"},
		bad:  []string{"", "0", "0Gi", "-1", "40 Gi", "40GB", "1e100", "1e-100000000", "lots", "Gi", "1e1.5"},
	}
	gangNames     = values{good: []string{"g", "my-gang", "a.b_c-1", strings.Repeat("x", 253)}, bad: []string{"", "a b", "a/b", "g\n", "\u202eg", strings.Repeat("x", 254)}}
	numbersOfPods = values{good: []string{"1", "16", "16384", "0004"}, bad: []string{"", "0", "00", "-1", "+1", "1.5", "four", "1e3", " 4"}}
	levelNames    = values{good: []string{"rack", "topology.kubernetes.io/rack", "tier-1", "L_2"}, bad: []string{"", "a rack", "rack,spine", "räck", strings.Repeat("x", 318)}}
)

// readByScheduler is what the scheduler makes of one annotation.
func readByScheduler(key, value string) error {
	if slices.Contains(gangrequest.InputKeys(), key) {
		return readOfGang(key, value)
	}
	one := v1.ResourceList{v1alpha1.DefaultResource: resource.MustParse("1")}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{key: value}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: one, Limits: one}}}},
	}
	_, err := podrequest.Parse(pod, &podrequest.Options{Resources: []string{v1alpha1.DefaultResource}, Supported: podrequest.AllPolicies()})
	return err
}

// readOfGang is what the scheduler makes of one annotation of a gang beside those that it needs.
func readOfGang(key, value string) error {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Annotations: map[string]string{}}}
	set := pod.Annotations
	if key == gangrequest.NearKey {
		set[key] = value
		keys, ok := gangrequest.NearOf(pod)
		if !ok {
			return fmt.Errorf("%q is near to nothing", value)
		}
		set[gangrequest.GangKey], value = keys[0].Name, keys[0].Name
		delete(set, key)
		key = gangrequest.GangKey
	}
	set[gangrequest.GangKey], set[gangrequest.GangSizeKey] = "g", "2"
	switch key {
	case gangrequest.MaxPerDomainKey:
		set[gangrequest.SpreadOverKey] = "rack"
	case gangrequest.RequiredSegmentKey, gangrequest.PreferredSegmentKey:
		set[gangrequest.SegmentSizeKey] = "2"
	}
	set[key] = value
	gang, ok := gangrequest.KeyOf(pod)
	if !ok {
		return errors.New("the pod is of no gang")
	}
	return gangrequest.Read(gang, nil, []*v1.Pod{pod}).Err
}

// TestInputKeys: the policy knows every input key. A key that the condition leaves out is judged in
// templates only.
func TestInputKeys(t *testing.T) {
	policies, err := manifests.Policies()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, p := range policies {
		if p.Name != "nvtopo-inputs" {
			continue
		}
		texts := map[string]string{"the condition": p.Spec.MatchConditions[0].Expression}
		for _, v := range p.Spec.Variables {
			if v.Name == "patterns" || v.Name == "wanted" {
				texts[v.Name] = v.Expression
			}
		}
		for key := range inputValues {
			for where, text := range texts {
				checked++
				if !strings.Contains(text, "'"+key+"'") {
					t.Errorf("%s does not have %s", where, key)
				}
			}
		}
	}
	if want := 3 * len(inputValues); checked != want {
		t.Errorf("%d places were looked at, want %d", checked, want)
	}
	for _, key := range append(podrequest.InputKeys(), gangrequest.InputKeys()...) {
		if _, ok := inputValues[key]; !ok && strings.HasPrefix(key, "nvtopo.dev/") {
			t.Errorf("no values are tried for %s", key)
		}
	}
}

func TestInputsPolicy(t *testing.T) {
	policies := compiledPolicies(t)
	ask := func(r request) []string { return answer(t, policies, r, "nvtopo-inputs") }
	for key, values := range inputValues {
		for _, v := range values.good {
			if err := readByScheduler(key, v); err != nil {
				t.Errorf("the scheduler cannot read %s=%q: %v", key, v, err)
			}
			checkAnswer(t, ask(request{resource: "pods", object: annotated(key, v)}), "")
		}
		for _, v := range values.bad {
			if readByScheduler(key, v) == nil {
				t.Errorf("the scheduler reads %s=%q", key, v)
			}
			checkAnswer(t, ask(request{resource: "pods", object: annotated(key, v)}), "metadata.annotations: "+key+": want ")
		}
	}
	const link, policy = podrequest.MinLinkKey, podrequest.TopologyPolicyKey
	template := func(pairs ...string) map[string]any {
		obj := map[string]any{"metadata": map[string]any{"name": "x"}}
		if err := unstructured.SetNestedMap(obj, annotated(pairs...), "spec", "template"); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	owned := func(controller bool, pairs ...string) map[string]any {
		obj := annotated(pairs...)
		owner := map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": controller}
		if err := unstructured.SetNestedSlice(obj, []any{owner}, "metadata", "ownerReferences"); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	tests := map[string]struct {
		request request
		want    string
	}{
		"a pod that a controller makes": {request{resource: "pods", object: owned(true, link, "x")}, ""},
		"a pod that only has an owner":  {request{resource: "pods", object: owned(false, link, "x")}, link},
		"a pod that a controller makes, with junk": {
			request{resource: "pods", object: owned(true, link, strings.Repeat("x", 200_000), policy, "y")}, "metadata.annotations: " + link + ": want at most 1024 bytes",
		},
		"a good value that is too long": {
			request{resource: "pods", object: owned(true, link, strings.Repeat(" ", 1022)+"NV4")}, link + ": want at most 1024 bytes",
		},
		"a long value that was there": {
			request{resource: "pods", object: annotated(link, strings.Repeat("x", 1025), "a", "b"), old: annotated(link, strings.Repeat("x", 1025))}, "",
		},
		"a pod of a controller made bad": {request{resource: "pods", object: owned(true, link, "x"), old: annotated()}, link},
		"a pod without annotations":      {request{resource: "pods", object: map[string]any{"metadata": map[string]any{"name": "x"}}}, ""},
		"the key of another system":      {request{resource: "pods", object: annotated("topology.kubernetes.io/policy", "whatever")}, ""},
		"a key that is not known":        {request{resource: "pods", object: annotated("nvtopo.dev/note", "whatever")}, ""},
		"a bad value that was there":     {request{resource: "pods", object: annotated(link, "x", "a", "b"), old: annotated(link, "x")}, ""},
		"a good value made bad":          {request{resource: "pods", object: annotated(link, "x"), old: annotated(link, "PIX")}, link},
		"a bad value made good":          {request{resource: "pods", object: annotated(link, "PIX"), old: annotated(link, "x")}, ""},
		"a bandwidth of bytes or bits": {
			request{resource: "pods", object: annotated(podrequest.MinBandwidthKey, "100G")},
			"100GB/s (bytes), or 100Gb/s or 100Gbps (bits, an eighth of that); 100G may mean either",
		},
		"two bad values":                        {request{resource: "pods", object: annotated(link, "x", policy, "y")}, policy + ": want none, best-effort"},
		"whoever may write allocations neither": {request{resource: "pods", object: annotated(link, "x"), may: []string{"write allocations"}}, link},
		"a Deployment":                          {request{resource: "deployments", object: template(link, "x")}, "spec.template.metadata.annotations: " + link},
		"a good Deployment":                     {request{resource: "deployments", object: template(link, "NV4")}, ""},
		"a Job without annotations":             {request{resource: "jobs", object: map[string]any{"metadata": map[string]any{"name": "x"}}}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { checkAnswer(t, ask(tc.request), tc.want) })
	}
}

// TestInputsPolicyRandom: the inputs policy refuses nothing that the scheduler reads. It changes
// values at random. Letters are ASCII: some others become ASCII in upper case, which only the
// scheduler looks at.
func TestInputsPolicyRandom(t *testing.T) {
	policies := compiledPolicies(t)
	const letters = "0123456789.+-_ ,eExXpPNVIGkKMmTi\taAtTrRuUfFnNoOdDeEsSyY"
	r := rand.New(rand.NewPCG(1, 2))
	refused, read := 0, 0
	for key, values := range inputValues {
		all := append(append([]string{}, values.good...), values.bad...)
		for range 400 {
			v := []byte(all[r.IntN(len(all))])
			for range r.IntN(3) {
				at, with := r.IntN(len(v)+1), letters[r.IntN(len(letters))]
				switch {
				case r.IntN(3) == 0 || at == len(v):
					v = append(v[:at:at], append([]byte{with}, v[at:]...)...)
				case r.IntN(2) == 0:
					v[at] = with
				default:
					v = append(v[:at:at], v[at+1:]...)
				}
			}
			err := readByScheduler(key, string(v))
			no := answer(t, policies, request{resource: "pods", object: annotated(key, string(v))}, "nvtopo-inputs")
			switch {
			case err == nil:
				read++
				if len(no) > 0 {
					t.Errorf("%s=%q is read by the scheduler and refused by the policy", key, v)
				}
			case len(no) > 0:
				refused++
			}
		}
	}
	if read < 500 || refused < 500 {
		t.Errorf("%d values read, %d refused: these were not a test", read, refused)
	}
}
