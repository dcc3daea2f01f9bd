// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
)

// FuzzDecodeTopologyAwareArgs feeds arbitrary text to the decoder that reads an
// operator's arguments. Whatever it accepts must be decoded to the same value
// after defaulting it once more, and after writing and reading it; validation
// must not fail in any other way than by an error.
func FuzzDecodeTopologyAwareArgs(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"bandwidthWeight":0}`, `{"residualWeights":{"2":0.5}}`, "residualWeights: {2: 1e3}", `{"resources":["a/b"]}`,
		"requestTimeout: 5m", `{"leaderLease":{"name":"x"}}`, `{"supportedPolicies":[null]}`, "bandwidthWeight: .inf",
	} {
		f.Add(seed)
	}
	gvk := schedulerv1.SchemeGroupVersion.WithKind(config.TopologyAwareName + "Args")
	decode := func(data []byte) (*config.TopologyAwareArgs, error) {
		obj, _, err := schedulerscheme.Codecs.UniversalDecoder().Decode(data, &gvk, nil)
		args, _ := obj.(*config.TopologyAwareArgs)
		return args, err
	}
	info, _ := runtime.SerializerInfoForMediaType(schedulerscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	encoder := schedulerscheme.Codecs.EncoderForVersion(info.Serializer, schedulerv1.SchemeGroupVersion)
	f.Fuzz(func(t *testing.T, text string) {
		args, err := decode([]byte(text))
		if err != nil || args == nil { // the text may name another kind
			return
		}
		valid := config.ValidateTopologyAwareArgs(args) == nil
		twice := args.DeepCopy()
		config.SetDefaults_TopologyAwareArgs(twice)
		if diff := cmp.Diff(args, twice); diff != "" {
			t.Errorf("defaulting twice (-once +twice):\n%s", diff)
		}
		if !valid {
			return
		}
		written, err := runtime.Encode(encoder, args)
		if err != nil {
			t.Fatalf("valid arguments cannot be written: %v", err)
		}
		again, err := decode(written)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, written)
		}
		again.TypeMeta = args.TypeMeta
		if diff := cmp.Diff(args, again); diff != "" {
			t.Errorf("round trip (-first +again):\n%s", diff)
		}
	})
}

// FuzzDecodeNUMAAffinityArgs is the same for the other plugin's arguments.
func FuzzDecodeNUMAAffinityArgs(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"sameNUMABonus":9223372036854775807}`, `{"crossNUMAPenalty":-1}`, "sameNUMABonus: 1e2", `{"defaultAffinity":"required"}`,
		"cpuset: false", `{"resources":["a/b","a/b"]}`, `{"defaultAffinity":"\u0000"}`,
	} {
		f.Add(seed)
	}
	gvk := schedulerv1.SchemeGroupVersion.WithKind(config.NUMAAffinityName + "Args")
	f.Fuzz(func(t *testing.T, text string) {
		obj, _, err := schedulerscheme.Codecs.UniversalDecoder().Decode([]byte(text), &gvk, nil)
		args, ok := obj.(*config.NUMAAffinityArgs)
		if err != nil || !ok { // the text may name another kind
			return
		}
		twice := args.DeepCopy()
		config.SetDefaults_NUMAAffinityArgs(twice)
		if diff := cmp.Diff(args, twice); diff != "" {
			t.Errorf("defaulting twice (-once +twice):\n%s", diff)
		}
		if config.ValidateNUMAAffinityArgs(args) != nil {
			return
		}
		if b, p := *args.SameNUMABonus, *args.CrossNUMAPenalty; b < 0 || b > 100 || p < 0 || p > 100 {
			t.Errorf("bonus %d and penalty %d are valid", b, p)
		}
	})
}
