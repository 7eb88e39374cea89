{{/* Name of the chart, for the label app.kubernetes.io/name. */}}
{{- define "fencepost.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of the objects. 47 characters: the longest suffix (-leader-election) still fits into the 63 of a label. */}}
{{- define "fencepost.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "fencepost.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 47 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change during the life of a release: the selector of a Deployment is immutable. */}}
{{- define "fencepost.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fencepost.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Labels of every object. Ours win over those of the values: selectors depend on them. */}}
{{- define "fencepost.labels" -}}
{{- $ours := fromYaml (include "fencepost.selectorLabels" .) -}}
{{- $_ := set $ours "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $ours "app.kubernetes.io/part-of" "fencepost" -}}
{{- $_ := set $ours "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $ours "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- toYaml (merge $ours .Values.commonLabels) -}}
{{- end -}}

{{/*
The common part of metadata, below `metadata:`. Parameters: root, name; optional: namespace (empty: a cluster-wide
object), labels, annotations.
*/}}
{{- define "fencepost.metadata" -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- toYaml (merge (fromYaml (include "fencepost.labels" .root)) (default (dict) .labels)) | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Name of the ServiceAccount. */}}
{{- define "fencepost.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "fencepost.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Reference of an image. Parameters: root, image (repository, tag, digest). */}}
{{- define "fencepost.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The subject of every binding. */}}
{{- define "fencepost.subjects" -}}
- kind: ServiceAccount
  name: {{ include "fencepost.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
