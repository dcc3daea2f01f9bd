// SPDX-License-Identifier: Apache-2.0

// Package interposer is a proxy between kubelet and unmodified device plugins. To a
// plugin it looks like kubelet's registry, and to kubelet like the plugin:
//
//	plugin ── Register ──► <RegistryDir>/kubelet.sock        (Interposer)
//	kubelet ◄── Register ── <PluginDir>/nvtopo-<resource>.sock (one Endpoint per resource)
//	kubelet ── ListAndWatch, Allocate, PreStartContainer ──► forwarded unchanged
//	kubelet ── GetPreferredAllocation ──► answered by Steering
//
// Invariant: kubelet records exactly the devices that the plugin's Allocate received.
// Ids are never changed between kubelet's Allocate and the plugin's. A device leaves the
// list only if the plugin removes it; while a plugin is away, its devices first keep
// their health and later become unhealthy.
//
// The package knows nothing of pods, annotations or the API server: that is Steering's
// work. It cannot see a plugin that also registers with kubelet directly: kubelet then
// follows the last one that registered.
package interposer
