{{/* The name of all that the release has. */}}
{{- define "millrace.name" -}}
{{- if contains "millrace" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-millrace" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of a component; it never changes. */}}
{{- define "millrace.selector" -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "millrace.labels" -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "millrace.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "millrace.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* A variable from a Secret: dict name, secret, key, optional. */}}
{{- define "millrace.secretEnv" -}}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .secret | quote }}, key: {{ .key | quote }}{{ if .optional }}, optional: true{{ end }}}}
{{- end -}}

{{/* Whether http.listen has TLS beyond the loopback. YAML takes off for false. */}}
{{- define "millrace.http.tls" -}}
{{- if has (toString (dig "http" "tls" "" .Values.config)) (list "off" "false") }}off{{ else }}on{{ end -}}
{{- end -}}

{{/* The environment of a process: what is common to all, then what is a store's. */}}
{{- define "millrace.env" -}}
{{- $v := .root.Values -}}
- {name: MILLRACE_DIR, value: /data}
- {name: MILLRACE_SERVER, value: {{ join "," $v.nats.servers | quote }}}
- {name: MILLRACE_DURABILITY, value: {{ $v.durability }}}
- {name: MILLRACE_HTTP_LISTEN, value: "{{ ternary "0.0.0.0" "127.0.0.1" $v.http.metrics }}:{{ $v.http.port }}"}
- {name: MILLRACE_MEMORY_LIMIT, value: {{ .values.memoryLimit | quote }}}
{{- if $v.config }}
- {name: MILLRACE_CONFIG, value: /etc/millrace/config/millrace.yaml}
{{- end }}
{{- with $v.nats.credentials }}
{{- if .secret }}
{{ include "millrace.secretEnv" (dict "name" "MILLRACE_CONNECT_USER" "secret" .secret "key" .userKey "optional" false) }}
{{ include "millrace.secretEnv" (dict "name" "MILLRACE_CONNECT_PASSWORD" "secret" .secret "key" .passwordKey "optional" false) }}
{{- end }}
{{- end }}
{{- if $v.nats.ca.secret }}
- {name: MILLRACE_CONNECT_CA, value: {{ printf "/etc/millrace/ca/%s" $v.nats.ca.key | quote }}}
{{- end }}
{{- if and $v.http.metrics $v.http.tls.secret }}
- {name: MILLRACE_HTTP_CERT, value: /etc/millrace/http/tls.crt}
- {name: MILLRACE_HTTP_KEY, value: /etc/millrace/http/tls.key}
{{- end }}
{{- if and (eq .component "store") $v.gateway.enabled }}
- {name: MILLRACE_GATEWAY_LISTEN, value: "0.0.0.0:{{ $v.gateway.port }}"}
{{- if $v.gateway.publicURL }}
- {name: MILLRACE_GATEWAY_PUBLIC_URL, value: {{ $v.gateway.publicURL | quote }}}
{{- end }}
{{- if $v.gateway.tls.secret }}
- {name: MILLRACE_GATEWAY_CERT, value: /etc/millrace/gateway/tls.crt}
- {name: MILLRACE_GATEWAY_KEY, value: /etc/millrace/gateway/tls.key}
{{- else }}
- {name: MILLRACE_GATEWAY_TLS, value: "off"}
{{- end }}
{{- end }}
{{- if or $v.http.metrics (and (eq .component "store") $v.gateway.enabled) }}
{{- $keys := required "keys.secret: the gateway and http.metrics need the master keys, the same for all processes" $v.keys.secret }}
{{ include "millrace.secretEnv" (dict "name" "MILLRACE_GATEWAY_KEYS_PRIMARY" "secret" $keys "key" "primary" "optional" false) }}
{{- if and $v.http.metrics (not $v.http.tls.secret) (eq (include "millrace.http.tls" .root) "on") }}
{{- fail "http.tls.secret: http.metrics needs a certificate; an authority that each pod makes anew is none that Prometheus could be told to trust" }}
{{- end }}
{{ include "millrace.secretEnv" (dict "name" "MILLRACE_GATEWAY_KEYS_SECONDARY" "secret" $keys "key" "secondary" "optional" true) }}
{{ include "millrace.secretEnv" (dict "name" "MILLRACE_GATEWAY_KEYS_PRIMARY_READ_ONLY" "secret" $keys "key" "primaryReadOnly" "optional" true) }}
{{ include "millrace.secretEnv" (dict "name" "MILLRACE_GATEWAY_KEYS_SECONDARY_READ_ONLY" "secret" $keys "key" "secondaryReadOnly" "optional" true) }}
{{- end }}
{{- with $v.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The volumes but for /data, and where they are mounted. */}}
{{- define "millrace.volumes" -}}
{{- $v := .root.Values -}}
{{- if $v.config }}
- name: config
  configMap: {name: {{ include "millrace.name" .root }}}
{{- end }}
{{- if $v.nats.ca.secret }}
- name: ca
  secret: {secretName: {{ $v.nats.ca.secret | quote }}}
{{- end }}
{{- if and $v.http.metrics $v.http.tls.secret }}
- name: http
  secret: {secretName: {{ $v.http.tls.secret | quote }}, defaultMode: 0440}
{{- end }}
{{- if and (eq .component "store") $v.gateway.enabled $v.gateway.tls.secret }}
- name: gateway
  secret: {secretName: {{ $v.gateway.tls.secret | quote }}, defaultMode: 0440}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "millrace.mounts" -}}
{{- $v := .root.Values -}}
- {name: data, mountPath: /data}
{{- if $v.config }}
- {name: config, mountPath: /etc/millrace/config, readOnly: true}
{{- end }}
{{- if $v.nats.ca.secret }}
- {name: ca, mountPath: /etc/millrace/ca, readOnly: true}
{{- end }}
{{- if and $v.http.metrics $v.http.tls.secret }}
- {name: http, mountPath: /etc/millrace/http, readOnly: true}
{{- end }}
{{- if and (eq .component "store") $v.gateway.enabled $v.gateway.tls.secret }}
- {name: gateway, mountPath: /etc/millrace/gateway, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A pod: dict root, component, values; dataVolume lists the volume data, if it is no claim's. */}}
{{- define "millrace.pod" -}}
{{- $v := .root.Values -}}
metadata:
  labels:
    {{- include "millrace.labels" . | nindent 4 }}
  annotations:
    # Pods are made anew when the configuration changes: they read it once.
    checksum/config: {{ toJson $v.config | sha256sum }}
    {{- if $v.http.metrics }}
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ $v.http.port | quote }}
    {{- if eq (include "millrace.http.tls" .root) "on" }}
    prometheus.io/scheme: https
    {{- end }}
    {{- end }}
    {{- with .values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "millrace.serviceAccount" .root }}
  automountServiceAccountToken: false
  # Variables of services such as MILLRACE_PORT would be read as configuration.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    # nonroot of the image.
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    # Else each start changes the owner of every file of a large cache.
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - {name: {{ . | quote }}}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ printf "%s:%s" $v.image.repository ($v.image.tag | default .root.Chart.AppVersion) | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args: [{{ .component }}]
      env:
        {{- include "millrace.env" . | nindent 8 }}
      {{- with $v.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: http, containerPort: {{ $v.http.port }}}
        {{- if and (eq .component "store") $v.gateway.enabled }}
        - {name: gateway, containerPort: {{ $v.gateway.port }}}
        {{- end }}
      # It listens only when it has reached NATS, which may have no quorum yet.
      startupProbe:
        exec: {command: [/millrace, health, --timeout, 4s]}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 60
      livenessProbe:
        exec: {command: [/millrace, health, --timeout, 4s]}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      # Whether it makes progress: a pipeline that is stuck makes its workers unready.
      readinessProbe:
        exec: {command: [/millrace, health, --ready, --timeout, 4s]}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 2
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        {{- include "millrace.mounts" . | nindent 8 }}
  {{- $volumes := include "millrace.volumes" . | trim }}
  {{- if or $volumes .dataVolume }}
  volumes:
    {{- with .dataVolume }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $volumes }}
    {{- . | nindent 4 }}
    {{- end }}
  {{- end }}
  topologySpreadConstraints:
    {{- if .values.topologySpreadConstraints }}
    {{- toYaml .values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "millrace.selector" . | nindent 10 }}
    {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
