// SPDX-License-Identifier: Apache-2.0

// Package interposer stands between kubelet and unmodified device plugins. To a
// plugin it is kubelet's registry, to kubelet it is the plugin:
//
//	plugin ── Register ──► <RegistryDir>/kubelet.sock        (Interposer)
//	kubelet ◄── Register ── <PluginDir>/nvtopo-<resource>.sock (one Endpoint a resource)
//	kubelet ── ListAndWatch, Allocate, PreStartContainer ──► passed on untouched
//	kubelet ── GetPreferredAllocation ──► Steering decides
//
// Its one invariant: what kubelet records is what the plugin was asked for. Ids
// are never changed between kubelet's Allocate and the plugin's, and no device
// leaves the list unless the plugin took it off; while a plugin is away its
// devices are held, then unhealthy.
//
// It does not know pods, annotations or the API server; that is Steering's. It
// cannot see a plugin that registers with kubelet directly as well: kubelet then
// follows whoever registered last.
package interposer
