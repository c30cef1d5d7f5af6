def is_live():
    return False
