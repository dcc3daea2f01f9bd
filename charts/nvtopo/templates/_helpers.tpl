{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The fields image and imagePullPolicy of a container: (list . NAME REFERENCE). */ -}}
{{- define "nvtopo.image" -}}
{{- $top := index . 0 -}}
{{- $name := index . 1 -}}
{{- with $top.Values.image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" .) $name }}{{ end -}}
image: {{ index . 2 | default (printf "%s:%s" $name ($top.Values.image.tag | default $top.Chart.AppVersion)) }}
{{- with $top.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /* The file of the ConfigMap that the scheduler reads. */ -}}
{{- define "nvtopo.schedulerConfig" -}}
{{- if .Values.scheduler.config -}}
config.yaml
{{- else -}}
{{- get (dict "PreBind" "scheduler-config.yaml" "Binding" "scheduler-config-binding.yaml" "DefaultScheduler" "scheduler-config-default.yaml") .Values.scheduler.profile -}}
{{- end -}}
{{- end }}
