// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// FuzzCheckResourceName compares with what kubelet accepts.
func FuzzCheckResourceName(f *testing.F) {
	for _, s := range []string{
		"nvidia.com/gpu", "nvidia.com/mig-1g.5gb.shared", "gpu", "", "/", "a/b/c", "kubernetes.io/gpu", "x.kubernetes.io/gpu", "requests.nvidia.com/gpu",
		"NVIDIA.com/gpu", "nvidia.com/", "nvidia.com/-", "nvidia.com/" + strings.Repeat("g", 64), strings.Repeat("d", 250) + "/gpu", "a/../../b", "a/b\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := deviceplugin.CheckResourceName(name)
		if got, want := err == nil, v1helper.IsExtendedResourceName(v1.ResourceName(name)); got != want {
			t.Errorf("%q: accepted %v (%v), kubelet %v", name, got, err, want)
		}
		if err == nil && strings.ContainsAny(deviceplugin.SocketName(name), "/\x00") {
			t.Errorf("%q: socket name %q has a character that no file name has", name, deviceplugin.SocketName(name))
		}
	})
}
