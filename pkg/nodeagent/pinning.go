// SPDX-License-Identifier: Apache-2.0

package nodeagent

import "k8s.io/apimachinery/pkg/types"

// confinement knows the CPUs that containers are confined to: by kubelet's CPU
// manager.
type confinement struct{ a *Agent }

// CPUs returns them in the kernel's list format, empty where there is no such limit.
func (c confinement) CPUs(uid types.UID, container string) string {
	return c.a.settings.CPUs(uid, container)
}
