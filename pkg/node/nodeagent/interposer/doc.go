// SPDX-License-Identifier: Apache-2.0

// Package interposer sits between kubelet and unmodified device plugins. To a
// plugin it looks like kubelet's registry, and to kubelet like the plugin:
//
//	plugin ── Register ──► <RegistryDir>/kubelet.sock        (Interposer)
//	kubelet ◄── Register ── <PluginDir>/nvtopo-<resource>.sock (one Endpoint per resource)
//	kubelet ── ListAndWatch, Allocate, PreStartContainer ──► passed on unchanged
//	kubelet ── GetPreferredAllocation ──► Steering decides
//
// Its one invariant: kubelet records exactly the devices that the plugin was asked
// for. Ids are never changed between kubelet's Allocate and the plugin's. A device
// leaves the list only if the plugin removes it; while a plugin is away, its
// devices first stay as they are and later become unhealthy.
//
// It knows nothing of pods, annotations or the API server: that is Steering's
// work. It cannot see a plugin that also registers with kubelet directly: kubelet
// then follows whoever registered last.
package interposer
