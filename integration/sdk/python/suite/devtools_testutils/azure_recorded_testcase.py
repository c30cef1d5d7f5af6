def get_credential(**_):
    raise NotImplementedError("Microsoft Entra ID is not served")
